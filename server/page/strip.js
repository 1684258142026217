// The film strip: the frames that the model takes from a clip, over them what a drafter sees, and under them its sound.
import { count, getting, h, icon, plural, s, seconds } from "./dom.js";
import { getJson } from "./api.js";
import { soundLength, soundOf, soundTrack } from "./sound.js";

const known = new Map(); // of frames, by file and number

// {data: [{time, width, height, data}], video}
export function framesOf(clip, size = 160) {
    const query = new URLSearchParams({ size });
    if (clip.frames)
        query.set("num_frames", clip.frames);
    const path = `v1/files/${encodeURIComponent(clip.id)}/frames?${query}`;
    if (!known.has(path)) {
        known.set(path, getJson(path).catch((e) => {
            known.delete(path);
            throw e;
        }));
    }
    return known.get(path);
}

// The bits of a view map, one for each video token.
export function seenOf(view) {
    const text = atob(view.seen);
    return (i) => (text.charCodeAt(i >> 3) >> (7 - (i & 7))) & 1;
}

// Tokens that the drafter does not see are covered. `t`: the frame's place in the map.
function veil(view, t) {
    const seen = seenOf(view);
    let shown = "", hidden = "";
    for (let y = 0; y < view.height; y++) {
        for (let x = 0; x < view.width; x++) {
            if (seen((t * view.height + y) * view.width + x))
                shown += `M${x + 0.07} ${y + 0.07}h.86v.86h-.86z`;
            else
                hidden += `M${x} ${y}h1v1h-1z`;
        }
    }
    return s("svg", { class: "veil", viewBox: `0 0 ${view.width} ${view.height}`, preserveAspectRatio: "none", "aria-hidden": "true" },
        s("path", { class: "hidden", d: hidden }), s("path", { class: "shown", d: shown }));
}

const place = (time) => (time < 60 ? `${time.toFixed(1)} s` : `${Math.floor(time / 60)}:${String(Math.floor(time % 60)).padStart(2, "0")}`);

function frameBox(frame, still) {
    return h("div", { class: "frame" },
        h("div", { class: "picture" }, h("img", { src: frame.data, alt: "", width: frame.width, height: frame.height, draggable: false })),
        h("span", { class: "time" }, still ? "" : place(frame.time)));
}

export function describeFrames(frames) {
    const v = frames.video, n = frames.data.length;
    if (!v.fps)
        return "picture";
    return `${seconds(v.duration)}, ${plural(n, "frame")}${v.total_frames > n ? ` of ${count(v.total_frames)}` : ""}`;
}

// Arrow keys move along the strip when it has the focus.
function reel(boxes, label) {
    const e = h("div", { class: "reel", tabindex: "0", role: "group", "aria-label": label }, h("div", { class: "film" }, h("div", { class: "shots" }, boxes)));
    e.addEventListener("keydown", (event) => {
        const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
        if (!by || event.altKey)
            return;
        e.scrollBy({ left: by * 180, behavior: "smooth" });
        event.preventDefault();
    });
    return e;
}

// A strip that fills itself. Its element has show(view): draw a view map over it, or none.
export function filmStrip(clip, options = {}) {
    const holder = h("div", { class: "holder" }, getting("Reading the frames"));
    const about = h("span", { class: "about" });
    const head = options.bare ? null : h("figcaption", null,
        h("span", { class: "clip-name" }, clip.name), about,
        options.play ? h("button", { type: "button", class: "small play", onclick: () => options.play(clip) }, icon("play"), h("span", null, "Play")) : null,
        options.more);
    const figure = h("figure", { class: options.small ? "strip small" : "strip" }, head, holder);
    let view = null, frames = null, boxes = [];
    const draw = () => {
        boxes.forEach((box, i) => {
            box.querySelector(".veil")?.remove();
            if (view)
                box.querySelector(".picture").append(veil(view, Math.min(view.frames - 1, Math.floor(i * view.frames / boxes.length))));
        });
    };
    figure.show = (v) => {
        view = v;
        if (frames)
            draw();
    };
    // Sound lies under the frames of the same time, as far as these are evenly spaced.
    const addSound = (sound, duration) => {
        const track = soundTrack(sound, clip.name);
        track.style.minWidth = `${100 * sound.samples / sound.rate / duration}%`;
        holder.querySelector(".film").append(track);
    };
    figure.ready = framesOf(clip).then((got) => {
        frames = got;
        const still = !got.video.fps;
        boxes = got.data.map((f) => frameBox(f, still));
        about.textContent = describeFrames(got);
        const last = got.data[got.data.length - 1];
        const label = still ? `The picture ${clip.name}` : `${plural(boxes.length, "frame")} of ${clip.name}, from ${place(got.data[0].time)} to ${place(last.time)}`;
        holder.replaceChildren(reel(boxes, label));
        draw();
        if (!still)
            soundOf(clip).then((sound) => sound && addSound(sound, got.video.duration));
        return got;
    }).catch(async (e) => {
        const sound = e.status === 404 ? null : await soundOf(clip);
        if (sound) {
            figure.classList.add("heard");
            about.textContent = `${soundLength(sound)} of sound`;
            holder.replaceChildren(soundTrack(sound, clip.name));
            return null;
        }
        const text = e.status === 404 ? `The server no longer has ${clip.name}. Add it again to ask about it.` : e.message;
        figure.classList.add("broken");
        holder.replaceChildren(h("p", { class: "error", role: "alert" }, text));
        return null;
    });
    return figure;
}
