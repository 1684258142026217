"""Other wordings of what `world.words` asks, for training that should not hang on its templates: the
question is turned into one of several that mean the same, the answer stays. Wordings in HELD_OUT are
never trained on; they measure whether a model understands what it is asked.
"""

import re

NAMED = ("where", "motion")  # kinds of questions about an object that is named

# kind: [(what a question looks like, wordings of it, wordings held out)]; in a wording {0}... are
# the groups of the pattern. `is` and `does` come as they are, so plurals stay right.
TEMPLATES = {
    "motion": [
        (r"What (do|does) the (.+) do (in .+)\?",
         ("What {0} the {1} do?", "Tell me what the {1} {0} {2}.", "How {0} the {1} behave {2}?",
          "And the {1}, what {0} it do {2}?", "Describe the movement of the {1}.",
          "In what way {0} the {1} move {2}?", "Look at the {1}: what happens to it?",
          "Say how the {1} can be seen to move {2}.", "What happens to the {1} {2}?",
          "I am looking for the {1}. What {0} it do?"),
         ("What is going on with the {1} {2}?", "Please explain what the {1} {0}.")),
        (r"How (do|does) the (.+) move (in .+)\?",
         ("How {0} the {1} move?", "What kind of movement {0} the {1} make {2}?",
          "Which way {0} the {1} move {2}?", "Describe how the {1} can be seen to move."),
         ("What is the motion of the {1} {2}?",)),
    ],
    "where": [
        (r"(?:Where|At which place) (is|are) the (.+) (in .+)\?",
         ("Where {0} the {1}?", "Where can I find the {1} {2}?", "In which place {0} the {1}?",
          "Tell me where the {1} {0} {2}.", "Which part of the picture shows the {1} {2}?",
          "I cannot find the {1}. Where {0} it?", "Where should I look for the {1} {2}?",
          "Name the place of the {1}.", "At what spot {0} the {1} {2}?"),
         ("In which corner or part of the frame {0} the {1}?", "Where do you see the {1} {2}?")),
        (r"(?:Where|At which place) (do|does) the (.+) (stop|cross|start|move) (in .+)\?",
         ("Where {0} the {1} {2}?", "Tell me where the {1} can be seen to {2} {3}.",
          "At what spot {0} the {1} {2} {3}?", "In which place {0} the {1} {2}?"),
         ("Please say where the {1} {0} {2}.",)),
    ],
    "what": [
        (r"(?:Which object|What|Which thing) (.+) (in .+)\?",
         ("Which of the objects {0} {1}?", "Name the thing that {0} {1}.",
          "Tell me what {0} {1}.", "What is it that {0} {1}?", "Something {0} {1}. What is it?"),
         ("What do you call the object which {0} {1}?",)),
    ],
    "order": [
        (r".+ first, the (.+) or the (.+)\?",
         ("The {0} or the {1}: which is there first?", "Do we see the {0} or the {1} first?",
          "Which of the two comes earlier, the {0} or the {1}?"),
         ("Between the {0} and the {1}, which one shows up earlier?",)),
    ],
    "count": [
        (r"How many (objects|things|scenes) (.+)\?",
         ("Count the {0}: how many {1}?", "Can you tell me how many {0} {1}?",
          "Give me the number: how many {0} {1}?"),
         ("Do you know how many {0} {1}?",)),
    ],
}
TOLD = (
    "Walk me through this video.", "I cannot see the video. What is in it?",
    "Explain this clip to me.", "What would you say about this video?", "Narrate the video.",
    "Go through the video scene by scene.", "Report what the video shows.",
    "Give me all that happens in the clip.", "Put this video into words.",
    "What did you just see?", "Tell me everything about the clip.", "Describe what you see here.",
)
TOLD_HELD_OUT = (
    "Talk me through what is on screen.", "Could you write down what this clip contains?",
    "Sum up the video for somebody who has not seen it.", "What takes place in this footage?",
)
BEFORE = ("", "", "", "Please: ", "Tell me: ", "One question: ", "Now, ", "Hello! ", "So, ")
_COMPILED = {kind: [(re.compile(p), w, h) for p, w, h in forms] for kind, forms in TEMPLATES.items()}


def wordings(kind, question, held_out=False):
    """Other questions of the same meaning, maybe none."""
    for pattern, trained, held in _COMPILED.get(kind, ()):
        found = pattern.fullmatch(question)
        if found:
            return [w.format(*found.groups()) for w in (held if held_out else trained)]
    return []


def reword(rng, kind, question):
    """The question, or in two of three cases another wording, sometimes with a word before it."""
    others = wordings(kind, question)
    if others and rng.random() < 0.67:
        question = rng.choice(others)
    before = rng.choice(BEFORE)
    if before.endswith(", "):
        question = question[0].lower() + question[1:] if question[:2] != "I " else question
    return before + question


def retell(rng, prompt):
    """A prompt that asks for a description: this one, or in a third of the cases another."""
    return rng.choice(TOLD) if rng.random() < 0.33 else prompt
