// Conversations and settings. They stay in this browser: the server keeps none.
//
// conversation: {id, title, turns}; turn of the user: {role, text, clips: [{id, name, frames}]}; of the
// model: {role, text, drafted, lengths, info, method, seed, finish, error, plain}. `lengths` are
// characters of `text` that came with each token, `drafted` says "1" where a drafter proposed it.

const PLACE = "prevue.conversations", SETTINGS = "prevue.settings";
const MOST = 50; // conversations

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
const isConversation = (c) => c && typeof c.id === "string" && Array.isArray(c.turns) && c.turns.every(isTurn);

export const conversations = read(PLACE, []).filter(isConversation);

// Fields that start with "live" are of this session; long timelines are left out.
function plainText(list, spans) {
    return JSON.stringify(list, (name, value) => {
        if (name.startsWith("live") || (name === "spans" && value && value.length > spans))
            return undefined;
        return value;
    });
}

export function save() {
    let list = conversations.filter((c) => c.turns.length).slice(0, MOST), spans = 1000;
    while (list.length) {
        try {
            localStorage.setItem(PLACE, plainText(list, spans));
            return;
        } catch (e) {
            if (e.name !== "QuotaExceededError")
                return;
            if (spans)
                spans = 0;
            else
                list = list.slice(0, list.length >> 1);
        }
    }
    try {
        localStorage.removeItem(PLACE);
    } catch { /* storage is off */ }
}

export function newConversation() {
    const empty = conversations.find((c) => !c.turns.length && !(c.liveClips && c.liveClips.length));
    if (empty)
        return empty;
    const c = { id: Math.random().toString(36).slice(2, 10) + Date.now().toString(36), title: "New conversation", turns: [] };
    conversations.unshift(c);
    return c;
}

export function dropConversation(c) {
    conversations.splice(conversations.indexOf(c), 1);
    save();
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
