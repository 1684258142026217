"""The openai package as a client of `prevue serve`: chat, streaming, videos, files, errors, timeouts and
retries. Called by tests/clients/run.sh with the address, a key and a video."""

import asyncio
import base64
import sys
import threading
import time

import openai

base_url, key, clip = sys.argv[1:4]
client = openai.OpenAI(base_url=base_url, api_key=key)
passed = failed = 0
text_only = [{"role": "user", "content": "Say something."}]


def case(run):
    """Run a test at once and count it."""
    global passed, failed
    try:
        run()
        passed += 1
        print(f"ok {run.__name__}")
    except Exception as e:  # pylint: disable=broad-except
        failed += 1
        print(f"FAIL {run.__name__}: {type(e).__name__}: {e}")


def about(url, question="Describe the video."):
    return [{"role": "user", "content": [
        {"type": "video_url", "video_url": {"url": url, "num_frames": 4}},
        {"type": "text", "text": question}]}]


def data_url():
    with open(clip, "rb") as f:
        return "data:video/mp4;base64," + base64.b64encode(f.read()).decode()


@case
def models():
    assert [m.id for m in client.models.list()] == ["nano"]
    assert client.models.retrieve("nano").id == "nano"


@case
def chat_and_stream_give_the_same():
    whole = client.chat.completions.create(model="nano", messages=about(data_url()))
    text = whole.choices[0].message.content
    assert text and whole.choices[0].finish_reason == "stop"
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
    own = whole.choices[0].model_extra["prevue"]
    assert len(own["ids"]) == whole.usage.completion_tokens == len(own["drafted"])
    pieces, ids, usage, roles = [], [], None, 0
    for chunk in client.chat.completions.create(model="nano", messages=about(data_url()), stream=True,
                                                stream_options={"include_usage": True}):
        if chunk.usage:
            usage = chunk.usage
            assert chunk.choices == []
            continue
        roles += chunk.choices[0].delta.role == "assistant"
        pieces.append(chunk.choices[0].delta.content or "")
        ids += chunk.choices[0].model_extra["prevue"]["ids"]
    assert "".join(pieces) == text and ids == own["ids"] and roles == 1
    assert usage.completion_tokens == whole.usage.completion_tokens


@case
def plain_decoding_gives_the_same():
    answers = [client.chat.completions.create(model="nano", messages=about(data_url()),
                                              extra_body={"prevue": {"method": m}}) for m in ("ar", "auto", "specvlm")]
    assert len({a.choices[0].message.content for a in answers}) == 1
    assert answers[0].choices[0].model_extra["prevue"]["accepted"] == 0


@case
def files():
    with open(clip, "rb") as f:
        stored = client.files.create(file=f, purpose="vision")
    assert stored.id in [f.id for f in client.files.list()]
    assert client.files.retrieve(stored.id).bytes == stored.bytes
    with open(clip, "rb") as f:
        assert client.files.content(stored.id).read() == f.read()
    a = client.chat.completions.create(model="nano", messages=about(stored.id), max_tokens=5)
    assert a.usage.completion_tokens == 5
    assert client.files.delete(stored.id).deleted
    try:
        client.files.retrieve(stored.id)
        raise AssertionError("the file is still there")
    except openai.NotFoundError:
        pass


@case
def several_answers_with_logprobs():
    a = client.chat.completions.create(model="nano", messages=text_only, n=3, temperature=1, seed=5, max_tokens=4,
                                       logprobs=True, top_logprobs=2, stop=["zebra"])
    assert [c.index for c in a.choices] == [0, 1, 2]
    assert all(len(t.top_logprobs) == 2 for c in a.choices for t in c.logprobs.content)
    again = client.chat.completions.create(model="nano", messages=text_only, n=3, temperature=1, seed=5, max_tokens=4)
    assert [c.message.content for c in a.choices] == [c.message.content for c in again.choices]


@case
def completions():
    a = client.completions.create(model="nano", prompt="This video shows", max_tokens=3, logprobs=1,
                                  extra_body={"ignore_eos": True})
    assert a.choices[0].text and len(a.choices[0].logprobs.tokens) == 3


@case
def errors_have_their_classes():
    once = client.with_options(max_retries=0)
    for kind, call in [
        (openai.AuthenticationError, lambda: client.with_options(api_key="other").models.list()),
        (openai.NotFoundError, lambda: once.chat.completions.create(model="gpt", messages=text_only)),
        (openai.BadRequestError, lambda: once.chat.completions.create(model="nano", messages=text_only, temperature=-1)),
        (openai.BadRequestError, lambda: once.chat.completions.create(model="nano", messages=about("data:x;base64,AAAA"))),
        (openai.InternalServerError, lambda: once.chat.completions.create(
            model="nano", messages=text_only, tools=[{"type": "function", "function": {"name": "f"}}])),
    ]:
        try:
            call()
        except kind as e:
            assert e.body["message"] and e.body["type"], e.body
        else:
            raise AssertionError(f"no {kind.__name__}")


@case
def timeouts_free_their_slots():
    impatient = client.with_options(timeout=0.3, max_retries=1)
    begin = time.time()
    for _ in range(4):
        try:
            impatient.chat.completions.create(model="nano", messages=text_only, max_tokens=20000,
                                              extra_body={"ignore_eos": True})
            raise AssertionError("it was answered")
        except openai.APITimeoutError:
            pass
    client.with_options(timeout=5).chat.completions.create(model="nano", messages=text_only, max_tokens=2)
    assert time.time() - begin < 20


@case
def leaving_a_stream_frees_its_slot():
    for _ in range(12):
        stream = client.chat.completions.create(model="nano", messages=text_only, max_tokens=20000, stream=True,
                                                extra_body={"ignore_eos": True})
        next(iter(stream))
        stream.close()
    client.with_options(timeout=5).chat.completions.create(model="nano", messages=text_only, max_tokens=2)


@case
def many_at_once():
    async def ask():
        a = openai.AsyncOpenAI(base_url=base_url, api_key=key)
        answers = await asyncio.gather(*[a.chat.completions.create(
            model="nano", messages=text_only, max_tokens=8, seed=i % 4, temperature=1) for i in range(32)])
        await a.close()
        return [x.choices[0].message.content for x in answers]
    texts = asyncio.run(ask())
    assert all(texts[i] == texts[i % 4] for i in range(32))


@case
def many_threads():
    texts = []

    def ask():
        texts.append(client.chat.completions.create(model="nano", messages=about("sample-16-frames"),
                                                    max_tokens=12).choices[0].message.content)
    threads = [threading.Thread(target=ask) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(texts) == 8 and len(set(texts)) == 1


print(f"{passed} passed, {failed} failed")
sys.exit(failed > 0)
