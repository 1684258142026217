// Talking to the server. Addresses are relative, so that the page also works below a path of a proxy.

export class ApiError extends Error {
    constructor(status, message) {
        super(message);
        this.status = status;
    }
}

const KEY = "prevue.key";
let key = "";
try {
    key = sessionStorage.getItem(KEY) || localStorage.getItem(KEY) || "";
} catch { /* storage is off */ }

export const apiKey = () => key;

export function setApiKey(value, keep) {
    key = value.trim();
    try {
        sessionStorage.removeItem(KEY);
        localStorage.removeItem(KEY);
        if (key)
            (keep ? localStorage : sessionStorage).setItem(KEY, key);
    } catch { /* kept in memory only */ }
}

export function keyIsKept() {
    try {
        return Boolean(localStorage.getItem(KEY));
    } catch {
        return false;
    }
}

// Called when a key is missing or wrong; resolves to whether to try again.
let askForKey = async () => false;
export function onMissingKey(f) {
    askForKey = f;
}

const headers = (more) => (key ? { Authorization: `Bearer ${key}`, ...more } : { ...more });

function sentence(status, body) {
    const message = body && body.error && body.error.message;
    if (message)
        return message.charAt(0).toUpperCase() + message.slice(1) + (/[.!?]$/.test(message) ? "" : ".");
    if (status === 413)
        return "The file is larger than the server takes.";
    if (status === 502 || status === 504)
        return "A proxy answered instead of the server: prevue is not running behind it.";
    return `The server answered with status ${status}.`;
}

async function failure(response) {
    let body = null;
    try {
        body = await response.json();
    } catch { /* not of ours */ }
    return new ApiError(response.status, sentence(response.status, body));
}

async function call(path, options = {}) {
    let response;
    try {
        response = await fetch(path, { ...options, headers: headers(options.headers) });
    } catch (e) {
        if (e.name === "AbortError")
            throw e;
        throw new ApiError(0, "The server cannot be reached. Is it still running?");
    }
    if (response.ok)
        return response;
    const error = await failure(response);
    if (error.status === 401 && await askForKey())
        return call(path, options);
    throw error;
}

export const getJson = async (path) => (await call(path)).json();
export const getBlob = async (path) => (await call(path)).blob();
export const remove = (path) => call(path, { method: "DELETE" });

// "loading", "ready", "draining", "failed", or "gone" when nobody answers.
export async function health() {
    try {
        return (await (await fetch("health", { cache: "no-store" })).json()).status;
    } catch {
        return "gone";
    }
}

// fetch() does not tell how far an upload is. Returns {promise, abort}.
export function upload(file, onProgress) {
    const form = new FormData();
    let request;
    form.append("purpose", "user_data");
    form.append("file", file, file.name);
    const once = () => new Promise((resolve, reject) => {
        request = new XMLHttpRequest();
        request.open("POST", "v1/files");
        for (const [name, value] of Object.entries(headers()))
            request.setRequestHeader(name, value);
        request.upload.onprogress = (e) => e.lengthComputable && onProgress(e.loaded / e.total);
        request.onabort = () => reject(new DOMException("stopped", "AbortError"));
        request.onerror = () => reject(new ApiError(0, "The upload broke off. Is the server still running, and does it take files of this size?"));
        request.onload = () => {
            let body = null;
            try {
                body = JSON.parse(request.responseText);
            } catch { /* not of ours */ }
            if (request.status === 200 && body)
                resolve(body);
            else
                reject(new ApiError(request.status, sentence(request.status, body)));
        };
        request.send(form);
    });
    const promise = once().catch(async (e) => {
        if (e.status === 401 && await askForKey())
            return once();
        throw e;
    });
    return { promise, abort: () => request.abort() };
}

// Lines of a stream of events; a line may come in many pieces.
async function* lines(response) {
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    try {
        for (;;) {
            const { value, done } = await reader.read();
            if (done)
                return;
            const parts = (rest + value).split("\n");
            rest = parts.pop();
            yield* parts;
        }
    } finally {
        reader.cancel().catch(() => {});
    }
}

// The first video of a request. A balancer in front of several servers sends requests about one video to the same server by it.
function videoHeader(request) {
    for (const message of request.messages)
        for (const part of Array.isArray(message.content) ? message.content : [])
            for (const value of Object.values(part))
                if (value && value.url && !value.url.startsWith("data:"))
                    return { "X-Prevue-Video": encodeURIComponent(value.url).slice(0, 256) };
    return {};
}

// A chat completion as a stream: yields {choice} for a piece, {progress} for the prefill, {usage} at the end.
export async function* chat(request, signal) {
    const response = await call("v1/chat/completions", {
        method: "POST",
        headers: { "Content-Type": "application/json", ...videoHeader(request) },
        body: JSON.stringify({ ...request, stream: true, stream_options: { include_usage: true } }),
        signal,
    });
    try {
        for await (const line of lines(response)) {
            if (line.startsWith(": {"))
                yield { progress: JSON.parse(line.slice(2)) };
            if (!line.startsWith("data: "))
                continue;
            if (line === "data: [DONE]")
                return;
            const piece = JSON.parse(line.slice(6));
            if (piece.error)
                throw new ApiError(piece.error.code || 500, sentence(500, piece));
            if (piece.choices && piece.choices.length)
                yield { choice: piece.choices[0] };
            else if (piece.usage)
                yield { usage: piece.usage };
        }
    } catch (e) {
        if (e.name === "AbortError" || e instanceof ApiError)
            throw e;
        throw new ApiError(0, "The connection broke off before the answer was complete.");
    }
    throw new ApiError(0, "The connection ended before the answer did.");
}
