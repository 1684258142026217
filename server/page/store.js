// Conversations and settings. They stay in this browser: the server keeps none.
//
// Each conversation has an entry of its own in the storage, so that two tabs do not overwrite each other's.
//
// conversation: {id, created, title, turns}; turn of the user: {role, text, clips: [{id, name, frames}]}; of the
// model: {role, text, drafted, lengths, info, method, seed, finish, error, plain}. `lengths` are
// characters of `text` that came with each token, `drafted` says "1" where a drafter proposed it.

const PLACE = "prevue.conversation.", SETTINGS = "prevue.settings";
const MOST = 200; // conversations

const DEFAULTS = { how: false, method: "", ratio: null, frames: null, temperature: 0, maxTokens: null };

function read(place, otherwise) {
    try {
        return JSON.parse(localStorage.getItem(place)) || otherwise;
    } catch {
        return otherwise;
    }
}

export const settings = { ...DEFAULTS, ...read(SETTINGS, {}) };

export function saveSettings() {
    try {
        localStorage.setItem(SETTINGS, JSON.stringify(settings));
    } catch { /* storage is off */ }
}

const isTurn = (t) => t && typeof t.text === "string" && (t.role === "assistant" || (t.role === "user" && Array.isArray(t.clips)));
const isConversation = (c) => c && typeof c.id === "string" && typeof c.created === "number" && typeof c.title === "string" && Array.isArray(c.turns) && c.turns.every(isTurn);

function readAll() {
    let names = [];
    try {
        names = Object.keys(localStorage).filter((name) => name.startsWith(PLACE));
    } catch { /* storage is off */ }
    return names.map((name) => read(name, null)).filter(isConversation).sort((a, b) => b.created - a.created);
}

// The newest first.
export const conversations = readAll();
conversations.splice(MOST).forEach((c) => localStorage.removeItem(PLACE + c.id));

// Fields that start with "live" are of this visit; long timelines are left out.
function textOf(c, spans) {
    return JSON.stringify(c, (name, value) => {
        if (name.startsWith("live") || (name === "spans" && value && value.length > spans))
            return undefined;
        return value;
    });
}

// When there is no room: first without timelines, then instead of the oldest ones.
export function save(c) {
    const older = conversations.filter((x) => x !== c && x.turns.length);
    let spans = 1000;
    while (c.turns.length && conversations.includes(c)) {
        try {
            localStorage.setItem(PLACE + c.id, textOf(c, spans));
            return;
        } catch (e) {
            if (e.name !== "QuotaExceededError" || (!spans && !older.length))
                return;
            if (spans)
                spans = 0;
            else
                localStorage.removeItem(PLACE + older.pop().id);
        }
    }
}

// Another tab has changed the storage. True: the list is another one now.
export function takeChange(name) {
    const id = name && name.startsWith(PLACE) ? name.slice(PLACE.length) : "";
    const i = conversations.findIndex((c) => c.id === id), stored = id && read(name, null);
    if (!id || (i >= 0 && conversations[i].turns.some((t) => t.liveAbort)))
        return false;
    if (i >= 0)
        conversations.splice(i, 1);
    if (isConversation(stored))
        conversations.push(stored);
    conversations.sort((a, b) => b.created - a.created);
    return true;
}

export function newConversation() {
    const empty = conversations.find((c) => !c.turns.length && !(c.liveClips && c.liveClips.length));
    if (empty)
        return empty;
    const c = { id: Math.random().toString(36).slice(2, 10) + Date.now().toString(36), created: Date.now(), title: "New conversation", turns: [] };
    conversations.unshift(c);
    return c;
}

export function dropConversation(c) {
    conversations.splice(conversations.indexOf(c), 1);
    try {
        localStorage.removeItem(PLACE + c.id);
    } catch { /* storage is off */ }
}

// Whether a file of the server is still spoken of.
export function isUsed(id) {
    return conversations.some((c) => (c.liveClips || []).some((k) => k.id === id) || c.turns.some((t) => (t.clips || []).some((k) => k.id === id)));
}

export function titleOf(c) {
    const first = c.turns.find((t) => t.role === "user");
    const text = first ? first.text || (first.clips[0] && first.clips[0].name) : "";
    const title = (text || "New conversation").replace(/\s+/g, " ").trim();
    return title.length > 60 ? title.slice(0, 59) + "…" : title;
}
