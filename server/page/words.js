// Names of the server in words.

export const DRAFTERS = {
    none: "nobody", model: "a draft model", self: "the model itself, on a shorter prompt", sparse: "the model itself, with part of its cache",
    head: "a draft head", ngram: "a table of what the text had before", random: "chance",
};

export const VIEWS = {
    full: "all of the video", none: "nothing", text: "the text only", random: "tokens at random", uniform: "evenly spaced tokens",
    attention: "what the question attends to most", specvlm: "what the question attends to, the rest evenly", holistic: "attention, change and place together",
    alignment: "what the model brings close to the text",
};

// What a span of the timeline is.
export const SPANS = { prefill: "reads the prompt", verify: "verifies drafts", decode: "decodes", draft: "drafts", wait: "waits" };

export const PHASES = {
    queue: "waiting for other requests", video: "decoding the video", vision: "vision tower", prefill: "reading the prompt", view: "choosing what the drafter sees",
    draft_prefill: "the drafter reads its prompt", draft: "drafting", verify: "verifying", decode: "decoding in all", total: "in all",
};

// While an answer is prepared.
export const PROGRESS = { video: "Decoding the video", vision: "Looking at the frames", prefill: "Reading the prompt" };
