// Puts the page together: conversations, the switch, themes, keys, and the state of the server.
import { $, announce, h, icon, iconButton } from "./dom.js";
import { getJson, health } from "./api.js";
import { answer, answerElement, questionElement, setServer, showHow } from "./chat.js";
import { forget, show as showComposer, startComposer, takeQuestion, welcome } from "./composer.js";
import { play, startDialogs } from "./dialogs.js";
import { setHearing } from "./sound.js";
import { conversations, dropConversation, newConversation, save, saveSettings, settings, takeChange, titleOf } from "./store.js";

let current = newConversation();
let model = { id: "", methods: [], method: "auto" };

/* ---- notices ---- */

function notice(text) {
    $("notice").replaceChildren(...(text ? [h("span", null, text), iconButton("close", "Dismiss", () => notice(""))] : []));
}

/* ---- conversations ---- */

const liveTurn = (c) => c.turns.find((t) => t.liveAbort);

function renderList() {
    const asked = conversations.filter((c) => c.turns.length);
    $("list").replaceChildren(...asked.map((c) => {
        const open = h("button", { type: "button", class: "open", "aria-current": c === current ? "true" : undefined, onclick: () => openConversation(c) },
            liveTurn(c) ? h("span", { class: "spin", role: "img", "aria-label": "Answering" }) : null, h("span", { class: "label" }, c.title));
        return h("li", null, open, iconButton("trash", `Delete “${c.title}”`, () => deleteConversation(c)));
    }));
    if (!asked.length)
        $("list").append(h("li", { class: "note" }, "Conversations stay in this browser."));
}

function renderHead() {
    const live = liveTurn(current);
    $("title").textContent = current.title;
    document.title = current.turns.length ? `${current.title} – prevue` : "prevue";
    $("stop").hidden = !live;
    $("send").hidden = Boolean(live);
}

function renderTurns() {
    const last = current.turns[current.turns.length - 1];
    $("turns").replaceChildren(...(current.turns.length ? current.turns.map((t) =>
        t.role === "user" ? questionElement(t, play) : answerElement(current, t, t === last ? () => regenerate(t) : null)) : [welcome(model)]));
}

function openConversation(c) {
    current = c;
    setSide(false);
    renderTurns();
    renderList();
    renderHead();
    showComposer(c);
    $("log").scrollTop = $("log").scrollHeight;
    if (!c.turns.length)
        $("log").scrollTop = 0;
    $("question").focus({ preventScroll: true });
}

function deleteConversation(c) {
    liveTurn(c)?.liveAbort.abort();
    dropConversation(c);
    c.turns.flatMap((t) => t.clips || []).forEach((clip) => forget(clip.id));
    announce("Deleted.");
    openConversation(c === current ? conversations[0] || newConversation() : current);
}

function forgetAll() {
    for (const c of [...conversations])
        deleteConversation(c);
}

/* ---- asking ---- */

let atEnd = true;

// Words that come in stay in sight, unless somebody scrolled away from them.
function follow() {
    if (atEnd && liveTurn(current))
        $("log").scrollTop = $("log").scrollHeight;
}

function changed() {
    renderList();
    renderHead();
}

function run(conversation, turn) {
    atEnd = true;
    answer(conversation, turn, changed);
}

function ask() {
    if (liveTurn(current))
        return;
    const question = takeQuestion(current);
    if (!question)
        return;
    const turn = { role: "assistant", text: "" };
    current.turns.push(question, turn);
    current.title = titleOf(current);
    notice("");
    save(current);
    renderTurns();
    run(current, turn);
    showComposer(current);
}

function regenerate(turn) {
    run(current, turn);
    $("question").focus({ preventScroll: true });
}

function stop() {
    liveTurn(current)?.liveAbort.abort();
}

/* ---- switches ---- */

function setHow(on) {
    settings.how = on;
    saveSettings();
    document.body.classList.toggle("how-on", on);
    $("how").setAttribute("aria-checked", String(on));
    showHow(current);
}

function setSide(open) {
    document.body.classList.toggle("side-open", open);
    $("menu").setAttribute("aria-expanded", String(open));
    if (open)
        $("new").focus();
}

const THEMES = { auto: ["auto", "Theme: as the system"], light: ["sun", "Theme: light"], dark: ["moon", "Theme: dark"] };

function setTheme(theme) {
    const [name, label] = THEMES[theme] || THEMES.auto;
    window.prevueTheme.set(theme);
    $("theme").replaceChildren(icon(name));
    $("theme").setAttribute("aria-label", label);
    $("theme").title = label;
}

function nextTheme() {
    const names = Object.keys(THEMES);
    setTheme(names[(names.indexOf(window.prevueTheme.get()) + 1) % names.length]);
    announce($("theme").title);
}

/* ---- keys ---- */

function step(by) {
    const i = conversations.indexOf(current) + by;
    if (conversations[i])
        openConversation(conversations[i]);
}

const SHORTCUTS = { KeyH: () => setHow(!settings.how), KeyN: () => openConversation(newConversation()), KeyU: () => $("pick").click() };

function onKey(e) {
    if (document.querySelector("dialog[open]"))
        return;
    if (e.key === "Escape") {
        if (document.body.classList.contains("side-open")) {
            setSide(false);
            $("menu").focus();
        } else {
            stop();
        }
    } else if (e.altKey && e.shiftKey && SHORTCUTS[e.code]) {
        e.preventDefault();
        SHORTCUTS[e.code]();
    } else if (e.altKey && !e.shiftKey && (e.key === "ArrowUp" || e.key === "ArrowDown")) {
        e.preventDefault();
        step(e.key === "ArrowUp" ? -1 : 1);
    }
}

/* ---- the server ---- */

const STATES = {
    loading: "The model is being loaded. This can take a minute.",
    draining: "The server is shutting down: it takes no new questions.",
    failed: "The server could not load its model.",
    gone: "The server cannot be reached. Is it still running?",
};

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function connect() {
    for (let state = await health(); state !== "ready"; state = await health()) {
        notice(STATES[state] || STATES.gone);
        await pause(1000);
    }
    notice("");
    try {
        const first = (await getJson("v1/models")).data[0];
        model = { id: first.id, ...first.prevue };
        setServer(model);
        setHearing(Boolean(model.audio));
        $("pick").accept = model.audio ? "video/*,image/*,audio/*" : "video/*,image/*";
        $("model").textContent = model.id;
        $("model").title = `prevue ${model.version}, context of ${first.max_model_len} tokens`;
        if (!current.turns.length)
            renderTurns();
    } catch (e) {
        notice(e.message);
    }
}

/* ---- begin ---- */

const ICONS = { menu: "menu", "close-side": "close", attach: "clip", send: "send", stop: "stop", "open-settings": "settings", "open-help": "keyboard" };
for (const [id, name] of Object.entries(ICONS))
    $(id).append(icon(name));
$("new").prepend(icon("plus"));
setTheme(window.prevueTheme.get());
startDialogs(() => model, forgetAll);
startComposer({ notice, play });
setHow(settings.how);

$("ask").addEventListener("submit", (e) => {
    e.preventDefault();
    ask();
});
$("stop").addEventListener("click", () => {
    stop();
    $("question").focus();
});
$("new").addEventListener("click", () => openConversation(newConversation()));
$("how").addEventListener("click", () => setHow(!settings.how));
$("theme").addEventListener("click", nextTheme);
$("menu").addEventListener("click", () => setSide(true));
$("shade").addEventListener("click", () => setSide(false));
$("close-side").addEventListener("click", () => {
    setSide(false);
    $("menu").focus();
});
$("log").addEventListener("scroll", () => {
    const log = $("log");
    atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 60;
});
new ResizeObserver(follow).observe($("turns"));
document.addEventListener("keydown", onKey);
window.addEventListener("pagehide", () => conversations.filter(liveTurn).forEach(save));
window.addEventListener("storage", (e) => {
    if (!takeChange(e.key))
        return;
    if (conversations.some((c) => c.id === current.id) && !conversations.includes(current))
        openConversation(conversations.find((c) => c.id === current.id));
    else if (!conversations.includes(current))
        openConversation(newConversation());
    else
        renderList();
});

openConversation(current);
connect();
