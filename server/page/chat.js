// Turns of a conversation: how they look, and how an answer comes in.
import { announce, getting, h, icon, iconButton, plural } from "./dom.js";
import { chat } from "./api.js";
import { howPanel, passesOf, speedOf } from "./how.js";
import { markdown } from "./markdown.js";
import { save, settings } from "./store.js";
import { filmStrip } from "./strip.js";
import { PROGRESS } from "./words.js";

const views = new WeakMap(); // of turns that are on the screen
let server = { methods: [], method: "auto" };
let plainSpeed = 0; // tokens/s, as last measured

export function setServer(model) {
    server = model;
}

/* ---- requests ---- */

function userParts(turn, more) {
    const media = [...more, ...turn.clips].map((clip) => ({
        type: "video_url",
        video_url: clip.frames && !clip.still ? { url: clip.id, num_frames: clip.frames } : { url: clip.id },
    }));
    return media.length ? [...media, { type: "text", text: turn.text }] : turn.text;
}

// What was said before this turn. A question that failed is left out; its clips go to the next one, unless they were at fault.
function messagesBefore(conversation, turn) {
    const messages = [], turns = conversation.turns.slice(0, conversation.turns.indexOf(turn));
    let left = [];
    turns.forEach((t, i) => {
        const answer = turns[i + 1];
        if (t.role === "assistant") {
            if (t.text)
                messages.push({ role: "assistant", content: t.text });
        } else if (answer && !answer.text) {
            if (!(answer.error && answer.error.status >= 400 && answer.error.status < 500))
                left.push(...t.clips);
        } else {
            messages.push({ role: "user", content: userParts(t, left) });
            left = [];
        }
    });
    return messages;
}

function requestOf(conversation, turn, own, more) {
    const request = { messages: messagesBefore(conversation, turn), prevue: own, ...more };
    if (turn.temperature > 0)
        Object.assign(request, { temperature: turn.temperature, seed: turn.seed });
    return request;
}

/* ---- words ---- */

// Characters of the text that came with each token; the server counts bytes.
function charsOf(content, lengths) {
    const data = new TextEncoder().encode(content), decoder = new TextDecoder();
    let at = 0, used = 0;
    const chars = lengths.map((n) => {
        const part = decoder.decode(data.subarray(at, at + n), { stream: true });
        at += n;
        used += part.length;
        return part.length;
    });
    if (chars.length)
        chars[chars.length - 1] += content.length - used;
    return chars;
}

function takePiece(turn, choice) {
    const content = choice.delta.content || "", own = choice.prevue;
    const chars = charsOf(content, own.lengths);
    if (!chars.length && content && turn.lengths.length)
        turn.lengths[turn.lengths.length - 1] += content.length;
    turn.text += content;
    turn.ids.push(...own.ids);
    turn.drafted += own.drafted;
    turn.lengths.push(...chars);
    return { content, drafted: own.drafted, chars };
}

// Words coloured by who made them; the colours are the style sheet's, when "how" is on. Space between runs has no colour.
function addWords(box, piece) {
    let at = 0;
    piece.chars.forEach((n, i) => {
        const kind = piece.drafted[i] === "1" ? "drafted" : "decoded", text = piece.content.slice(at, at + n);
        at += n;
        if (!n)
            return;
        if (box.lastChild && box.lastChild.className === kind && box.lastChild.firstChild)
            box.lastChild.append(text);
        else
            box.append(text.slice(0, text.length - text.trimStart().length), h("span", { class: kind }, text.trimStart()));
    });
    if (at < piece.content.length)
        (box.lastChild || box).append(piece.content.slice(at));
    box.normalize();
}

/* ---- an answer ---- */

export async function answer(conversation, turn, changed) {
    const abort = new AbortController(), last = clipOf(conversation, turn) ? "Looking at the video" : "Reading the question";
    Object.assign(turn, { text: "", ids: [], drafted: "", lengths: [], info: null, error: null, finish: null, plain: null, liveAbort: abort, liveState: last, liveFirst: 0 });
    turn.temperature = settings.temperature;
    turn.seed = Math.floor(Math.random() * 2 ** 31);
    turn.method = settings.method || undefined;
    turn.ratio = settings.ratio === null ? undefined : settings.ratio;
    const update = () => views.get(turn)?.update();
    changed();
    update();
    announce("The model works on an answer.");
    try {
        const own = { method: turn.method, ratio: turn.ratio, trace: true, view: true, progress: true };
        const request = requestOf(conversation, turn, own, settings.maxTokens ? { max_tokens: settings.maxTokens } : {});
        for await (const event of chat(request, abort.signal)) {
            if (event.progress && event.progress.total)
                turn.liveState = `${PROGRESS[event.progress.phase] || "Working"}: ${Math.round(100 * event.progress.done / event.progress.total)} %`;
            if (event.choice) {
                const piece = takePiece(turn, event.choice);
                turn.liveState = "";
                turn.liveFirst = turn.liveFirst || performance.now();
                views.get(turn)?.words(piece);
                if (event.choice.finish_reason) {
                    turn.finish = event.choice.finish_reason;
                    const { ids, drafted, lengths, ...info } = event.choice.prevue;
                    turn.info = info;
                }
            }
            update();
        }
        if (turn.info && turn.info.drafter === "none" && speedOf(turn.info))
            plainSpeed = speedOf(turn.info);
        announce(turn.text ? `Answer: ${turn.text}` : "The answer is empty.");
    } catch (e) {
        if (e.name === "AbortError") {
            turn.finish = "stopped";
            announce("Stopped.");
        } else {
            turn.error = { status: e.status, message: e.message };
            announce("");
        }
    }
    turn.liveAbort = null;
    turn.liveState = "";
    update();
    changed();
    save(conversation);
}

// The same question by plain decoding: its speed, and whether the tokens are the same.
async function compare(conversation, turn, onToken) {
    const request = requestOf(conversation, turn, { method: "ar" }, { max_tokens: turn.info.tokens + 1 });
    const ids = [];
    let info = null;
    for await (const event of chat(request)) {
        if (!event.choice)
            continue;
        ids.push(...event.choice.prevue.ids);
        onToken(ids.length);
        if (event.choice.finish_reason)
            info = event.choice.prevue;
    }
    plainSpeed = speedOf(info);
    turn.plain = { speed: plainSpeed, same: turn.ids.every((id, i) => id === ids[i]) && (turn.finish !== "stop" || ids.length === turn.ids.length) };
    save(conversation);
}

// What the drafter of a method would see of this turn's video.
async function viewOf(conversation, turn, method) {
    const request = requestOf(conversation, turn, { method, ratio: turn.ratio, view: true }, { max_tokens: 1 });
    let view = null;
    for await (const event of chat(request))
        if (event.choice && event.choice.finish_reason)
            view = event.choice.prevue.view;
    return view;
}

/* ---- on the screen ---- */

// How fast words come in, as the browser sees it.
function progress(turn) {
    const n = turn.drafted.length, t = (performance.now() - turn.liveFirst) / 1000;
    const passes = passesOf(turn.drafted).length;
    return `${plural(n, "token")} in ${plural(passes, "pass", "passes")}${t > 0.2 ? `, ${Math.round(n / t)} tokens/s` : ""}`;
}

export async function copyText(text) {
    try {
        await navigator.clipboard.writeText(text);
        return true;
    } catch { /* no secure context: the old way */ }
    const area = h("textarea", { class: "quiet", readOnly: true });
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
}

function copyButton(turn) {
    const button = iconButton("copy", "Copy the answer", async () => {
        const done = await copyText(turn.text);
        announce(done ? "Copied." : "The browser does not allow copying.");
        button.replaceChildren(icon(done ? "done" : "close"), h("span", null, done ? "Copied" : "Not allowed"));
        setTimeout(() => button.replaceChildren(icon("copy"), h("span", null, "Copy")), 1500);
    }, "Copy");
    return button;
}

function note(turn) {
    if (turn.finish === "stopped")
        return turn.text ? `Stopped after ${plural(turn.drafted.length, "token")}.` : "Stopped before the first word.";
    if (turn.finish === "length")
        return `Ended at the limit of ${plural(turn.drafted.length, "token")}.`;
    return turn.finish === "stop" && !turn.text ? "The model has nothing to say to this." : "";
}

function clipOf(conversation, turn) {
    const before = conversation.turns.slice(0, conversation.turns.indexOf(turn));
    return before.flatMap((t) => t.clips || []).find((c) => !c.still) || null;
}

export function answerElement(conversation, turn, again) {
    const words = h("div", { class: "words" }), prose = h("div", { class: "prose" }), foot = h("div", { class: "actions" }), how = h("div", { class: "how-place" });
    const state = getting("");
    const e = h("article", { class: "turn model", "aria-label": "Answer" }, prose, words, state, foot, how);
    let shown = null, drawn = "", due = false;
    // Without colours the text is laid out; at most once for each picture of the screen.
    const layOut = () => {
        due = false;
        prose.replaceChildren(...markdown(turn.text));
    };
    const view = {
        words(piece) {
            addWords(words, piece);
            if (!due) {
                due = true;
                requestAnimationFrame(layOut);
            }
        },
        update() {
            const live = Boolean(turn.liveAbort), key = `${live} ${turn.finish} ${Boolean(turn.error)}`;
            if (!turn.text && words.childNodes.length) {
                words.replaceChildren();
                prose.replaceChildren();
            }
            words.setAttribute("aria-busy", String(live));
            prose.setAttribute("aria-busy", String(live));
            e.classList.toggle("live", live && Boolean(turn.text));
            const doing = turn.liveState || (settings.how && live ? progress(turn) : "");
            state.hidden = !(live && doing);
            state.set(doing);
            if (key !== drawn) {
                drawn = key;
                foot.replaceChildren(...(live ? [] : [
                    turn.error ? h("p", { class: "error", role: "alert" }, turn.error.message) : null,
                    note(turn) ? h("p", { class: "note" }, note(turn)) : null,
                    turn.text ? copyButton(turn) : null,
                    again ? iconButton("again", turn.error ? "Try again" : "Regenerate", again, turn.error ? "Try again" : "Regenerate") : null,
                ].filter(Boolean)));
            }
            view.how();
        },
        // Made when it is first seen.
        how() {
            const wanted = settings.how && turn.info && !turn.liveAbort ? turn.info : null;
            if (wanted === shown)
                return;
            shown = wanted;
            how.replaceChildren(...(wanted ? [howPanel(turn, {
                plain: turn.plain ? turn.plain.speed : plainSpeed,
                newest: turn === conversation.turns[conversation.turns.length - 1],
                clip: clipOf(conversation, turn),
                methods: server.methods,
                compare: (onToken) => compare(conversation, turn, onToken),
                getView: (method) => viewOf(conversation, turn, method),
            })] : []));
        },
    };
    if (turn.text) {
        layOut();
        addWords(words, { content: turn.text, drafted: turn.drafted || "", chars: turn.lengths || [] });
    }
    views.set(turn, view);
    view.update();
    return e;
}

export function questionElement(turn, play) {
    return h("article", { class: "turn user", "aria-label": "You" },
        turn.clips.map((clip) => filmStrip(clip, { play })),
        turn.text ? h("p", { class: "bubble" }, turn.text) : null);
}

// The switch was turned: panels of what is on the screen.
export function showHow(conversation) {
    conversation.turns.forEach((turn) => views.get(turn)?.how());
}
