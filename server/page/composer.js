// The question: its text, clips that go with it, and where clips come from.
import { $, announce, bytes, h, iconButton, percent, plural } from "./dom.js";
import { getJson, remove, upload } from "./api.js";
import { isHearing } from "./sound.js";
import { isUsed, settings } from "./store.js";
import { describeFrames, filmStrip, framesOf } from "./strip.js";

const IDEAS = ["Describe the video.", "How many scenes does the video have?", "What happens in the first scene?", "What colour is the background?"];

let current = null; // conversation
let notice = () => {};
let player = () => {};

const clipsOf = (c) => c.liveClips || (c.liveClips = []);

function forget(id) {
    if (!id.startsWith("sample-") && !isUsed(id))
        remove(`v1/files/${encodeURIComponent(id)}`).catch(() => {});
}

/* ---- clips ---- */

function framesField(clip, redraw) {
    const input = h("input", { type: "number", min: "1", max: "512", class: "frames", "aria-label": `Frames of ${clip.name}`, placeholder: "auto", inputmode: "numeric", value: clip.frames ? String(clip.frames) : "" });
    input.addEventListener("change", () => {
        const n = Math.round(Number(input.value));
        clip.frames = n >= 1 && n <= 512 ? n : null;
        redraw();
    });
    input.addEventListener("keydown", (e) => {
        if (e.key === "Enter") {
            e.preventDefault();
            input.blur();
            $("question").focus();
        }
    });
    return h("label", { class: "frames-label" }, "Frames ", input);
}

function clipElement(conversation, clip) {
    const drop = iconButton("close", `Remove ${clip.name}`, () => {
        const clips = clipsOf(conversation);
        if (clip.liveUpload)
            clip.liveUpload.abort();
        clips.splice(clips.indexOf(clip), 1);
        if (clip.id)
            forget(clip.id);
        show(conversation);
        $("question").focus();
    });
    if (clip.liveUpload) {
        const bar = h("progress", { max: 1, value: clip.liveDone || 0, "aria-label": `Upload of ${clip.name}` }), text = h("span", { class: "about" });
        clip.liveTell = () => {
            bar.value = clip.liveDone || 0;
            text.textContent = `${percent(clip.liveDone || 0)} of ${bytes(clip.bytes)}`;
        };
        clip.liveTell();
        return h("figure", { class: "strip small" }, h("figcaption", null, h("span", { class: "clip-name" }, clip.name), text, drop), bar);
    }
    const holder = h("div", null);
    const draw = () => {
        const still = Boolean(clip.still);
        const strip = filmStrip(clip, { small: true, play: player, more: [still ? null : framesField(clip, draw), drop] });
        strip.ready.then((frames) => {
            if (frames && !frames.video.fps && !still) { // known only now
                clip.still = true;
                draw();
            }
        });
        holder.replaceChildren(strip);
    };
    draw();
    return holder;
}

export function addFile(file) {
    const conversation = current;
    const kinds = isHearing() ? /^(video|image|audio)\// : /^(video|image)\//;
    if (!kinds.test(file.type) && file.type) {
        notice(isHearing() ? `${file.name} is neither a video nor a picture nor sound.` : `${file.name} is neither a video nor a picture.`);
        return;
    }
    const clip = { id: "", name: file.name, bytes: file.size, frames: settings.frames };
    clip.liveUpload = upload(file, (share) => {
        clip.liveDone = share;
        clip.liveTell?.();
    });
    clip.liveUpload.promise.then((stored) => {
        clip.id = stored.id;
        announce(`${file.name} is uploaded.`);
    }).catch((e) => {
        const clips = clipsOf(conversation);
        if (clips.includes(clip))
            clips.splice(clips.indexOf(clip), 1);
        if (e.name !== "AbortError")
            notice(`${file.name} was not uploaded: ${e.message}`);
    }).finally(() => {
        clip.liveUpload = clip.liveTell = null;
        if (conversation === current)
            show(conversation);
    });
    clipsOf(conversation).push(clip);
    show(conversation);
    $("question").focus();
}

function addSample(file) {
    const clips = clipsOf(current);
    if (!clips.some((c) => c.id === file.id))
        clips.push({ id: file.id, name: file.filename, frames: settings.frames });
    show(current);
    $("question").focus();
}

// What is asked now: null while uploads are under way.
export function takeQuestion(conversation) {
    const area = $("question"), text = area.value.trim(), clips = clipsOf(conversation);
    if (clips.some((c) => c.liveUpload)) {
        announce("An upload is still under way.");
        return null;
    }
    if (!text && !clips.length)
        return null;
    area.value = "";
    area.dispatchEvent(new Event("input"));
    conversation.liveClips = [];
    show(conversation);
    return { role: "user", text: text || "Describe the video.", clips: clips.map(({ id, name, frames, still }) => ({ id, name, frames, still })) };
}

export function show(conversation) {
    const clips = clipsOf(conversation);
    current = conversation;
    $("clips").replaceChildren(...clips.map((c) => clipElement(conversation, c)));
    const fresh = clips.length && !conversation.turns.length;
    $("ideas").replaceChildren(...(fresh ? IDEAS : []).map((text) => h("button", { type: "button", class: "idea", onclick: () => {
        $("question").value = text;
        $("ask").requestSubmit();
    } }, text)));
    document.body.classList.toggle("has-clips", clips.length > 0);
    $("send").disabled = clips.some((c) => c.liveUpload);
}

/* ---- the first screen ---- */

function sampleCard(file) {
    const pictures = h("span", { class: "pictures" }), about = h("span", { class: "about" });
    framesOf({ id: file.id, frames: 4 }, 128).then((got) => {
        pictures.append(...got.data.slice(0, 4).map((f) => h("img", { src: f.data, alt: "", width: f.width, height: f.height })));
        about.textContent = describeFrames({ ...got, data: { length: got.video.total_frames } });
    }).catch((e) => {
        about.textContent = e.message;
    });
    return h("button", { type: "button", class: "sample", onclick: () => addSample(file) }, pictures, h("span", { class: "clip-name" }, file.filename), about);
}

export function welcome(model) {
    const samples = h("div", { class: "samples" });
    const found = h("div", { hidden: true }, h("h3", null, "Or try one of these clips"), samples);
    const listed = model.id ? getJson("v1/files") : new Promise(() => {}); // not while the model is loaded
    listed.then((list) => {
        const files = list.data.filter((f) => f.purpose === "sample").sort((a, b) => a.filename.localeCompare(b.filename, "en", { numeric: true }));
        samples.replaceChildren(...files.map(sampleCard));
        found.hidden = !files.length;
    }).catch(() => {});
    return h("div", { class: "welcome" },
        h("h2", null, "What would you like to know about a video?"),
        h("button", { type: "button", class: "well", onclick: () => $("pick").click() },
            h("b", null, "Drop a video or picture here"), h("span", null, "or choose a file")),
        found,
        model.id === "nano" ? h("p", { class: "note" }, "nano is the small model that comes with prevue. It knows only the drawn world of these clips, and makes mistakes there too. For videos of your own, start the server with another model: ",
            h("code", null, "prevue serve -m MODEL")) : null,
        model.vision === false ? h("p", { class: "error" }, "This model has no vision tower: it can answer text, but no questions about videos.") : null);
}

/* ---- where clips come from ---- */

function addFiles(files) {
    if (files.length > 8)
        notice(`${plural(files.length, "file")} at once are too many: the first 8 are taken.`);
    [...files].slice(0, 8).forEach(addFile);
}

export function startComposer(options) {
    const area = $("question"), drop = $("drop");
    let depth = 0;
    notice = options.notice;
    player = options.play;
    $("attach").addEventListener("click", () => $("pick").click());
    $("pick").addEventListener("change", () => {
        addFiles($("pick").files);
        $("pick").value = "";
    });
    area.addEventListener("input", () => {
        area.style.height = "auto";
        area.style.height = `${Math.min(area.scrollHeight, 200)}px`;
    });
    area.addEventListener("keydown", (e) => {
        if (e.key === "Enter" && !e.shiftKey && !e.isComposing) {
            e.preventDefault();
            $("ask").requestSubmit();
        }
    });
    area.addEventListener("paste", (e) => {
        if (e.clipboardData.files.length) {
            e.preventDefault();
            addFiles(e.clipboardData.files);
        }
    });
    const hasFiles = (e) => e.dataTransfer && [...e.dataTransfer.types].includes("Files");
    const mark = (n) => {
        depth = Math.max(0, n);
        drop.classList.toggle("shown", depth > 0);
    };
    window.addEventListener("dragenter", (e) => hasFiles(e) && mark(depth + 1));
    window.addEventListener("dragleave", (e) => hasFiles(e) && mark(depth - 1));
    window.addEventListener("dragover", (e) => hasFiles(e) && e.preventDefault());
    window.addEventListener("drop", (e) => {
        if (!hasFiles(e))
            return;
        e.preventDefault();
        mark(0);
        addFiles(e.dataTransfer.files);
    });
}

export { forget };
