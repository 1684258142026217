/* Multiple choice: answers as models write them, and keys as lists write them. */
#include "multiple_choice.h"

#include "test.h"

static const char colours[] = "A dog\0B. a red car\0(C) Two cats.";

TEST(answers_mean_an_option)
{
    static const struct {
        const char *answer;
        int option;
    } rows[] = {
        { "A", 0 },
        { "B.", 1 },
        { " (C)", 2 },
        { "B. a red car", 1 },
        { "C: cats", 2 },
        { "**B**", -1 },
        { "A dog", 0 },
        { "a dog.", 0 },
        { "A Red Car", 1 },
        { "two cats", 2 },
        { "A dog and a cat", -1 },
        { "The answer is B.", 1 },
        { "I first thought of option A, but the answer is (C).", 2 },
        { "D", -1 },
        { "", -1 },
        { "Because", -1 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int found = choice_of(rows[i].answer, colours, 3);
        CHECK_MSG(found == rows[i].option, "\"%s\" means %d, not %d", rows[i].answer,
                  rows[i].option, found);
    }
}

TEST(keys_are_letters_or_numbers)
{
    CHECK_EQ(choice_key("B", 3), 1);
    CHECK_EQ(choice_key("b", 3), 1);
    CHECK_EQ(choice_key("(C)", 3), 2);
    CHECK_EQ(choice_key("0", 3), 0);
    CHECK_EQ(choice_key("2", 3), 2);
    CHECK_EQ(choice_key("3", 3), -1);
    CHECK_EQ(choice_key("D", 3), -1);
    CHECK_EQ(choice_key("-1", 3), -1);
    CHECK_EQ(choice_key("AB", 3), -1);
    CHECK_EQ(choice_key("", 3), -1);
}

TEST(options_follow_the_question)
{
    struct buf out;
    buf_init(&out, 1000);
    choice_prompt(&out, "What is there?", colours, 3);
    CHECK_STR(out.data, "What is there?\nA. A dog\nB. a red car\nC. Two cats.\n"
                        "Answer with the letter of the right option only.");
    buf_clear(&out);
}

int main(int argc, char **argv)
{
    return test_main(argc, argv);
}
