// The sound track of a clip, for models that hear: how loud it is over time.
import { s, seconds } from "./dom.js";
import { getJson } from "./api.js";

const POINTS = 400;
const known = new Map(); // by file
let hears = false;

// Whether the model hears; until then nothing is asked of the server.
export function setHearing(on) {
    hears = on;
}
export const isHearing = () => hears;

// {samples, rate, peaks}, or null: there is no sound, or nobody to hear it.
export async function soundOf(clip) {
    if (!hears)
        return null;
    if (!known.has(clip.id))
        known.set(clip.id, getJson(`v1/files/${encodeURIComponent(clip.id)}/sound?points=${POINTS}`).catch(() => {
            known.delete(clip.id);
            return { samples: 0 };
        }));
    const sound = await known.get(clip.id);
    return sound.samples ? sound : null;
}

export const soundLength = (sound) => seconds(sound.samples / sound.rate);

// Loud clips fill the height, faint ones are drawn as if their loudest moment were a tenth of that.
export function soundTrack(sound, name) {
    const top = Math.max(0.1, ...sound.peaks), last = sound.peaks.length;
    const upper = sound.peaks.map((p, i) => `L${i + 0.5} ${(1 - p / top).toFixed(3)}`);
    const lower = sound.peaks.map((p, i) => `L${i + 0.5} ${(1 + p / top).toFixed(3)}`).reverse();
    return s("svg", { class: "sound", viewBox: `0 0 ${last} 2`, preserveAspectRatio: "none", role: "img", "aria-label": `Sound of ${name}, ${soundLength(sound)}` },
        s("path", { d: `M0 1${upper.join("")}L${last} 1${lower.join("")}z` }));
}
