// Settings, the API key, help, and the player.
import { $, h } from "./dom.js";
import { apiKey, getBlob, keyIsKept, onMissingKey, setApiKey } from "./api.js";
import { DRAFTERS, VIEWS } from "./words.js";
import { saveSettings, settings } from "./store.js";

/* ---- API key ---- */

// One dialog for all requests that fail at the same time.
let asking = null;

function askForKey() {
    if (asking)
        return asking;
    const dialog = $("key");
    $("key-why").textContent = apiKey() ? "The server does not know this key." : "Whoever runs the server can give you one.";
    $("key-input").value = "";
    $("key-keep").checked = keyIsKept();
    dialog.returnValue = "";
    dialog.showModal();
    asking = new Promise((resolve) => {
        dialog.addEventListener("close", () => {
            asking = null;
            const given = dialog.returnValue === "ok" && $("key-input").value.trim() !== "";
            if (given)
                setApiKey($("key-input").value, $("key-keep").checked);
            resolve(given);
        }, { once: true });
    });
    return asking;
}

/* ---- settings ---- */

function methodNote(model) {
    const m = model.methods.find((x) => x.name === $("method").value) || model.methods.find((x) => x.name === model.method);
    if (!m)
        return "";
    if (m.drafter === "none")
        return "Plain decoding: one token in each pass of the model.";
    return `${DRAFTERS[m.drafter] || m.drafter} proposes tokens`.replace(/^./, (c) => c.toUpperCase()) +
        `${m.reads_prompt ? ` and sees ${VIEWS[m.view_name] || m.view_name}` : ""}${m.parallel ? ", while the model verifies earlier ones" : ""}. The text is the same with every method.`;
}

const numberOf = (id, min, max) => {
    const v = $(id).value === "" ? NaN : Number($(id).value);
    return v >= min && v <= max ? v : null;
};

function fillSettings(model) {
    $("method").replaceChildren(h("option", { value: "" }, `as the server: ${model.method}`), ...model.methods.map((m) => h("option", { value: m.name }, m.name)));
    $("method").value = model.methods.some((m) => m.name === settings.method) ? settings.method : "";
    $("ratio").value = String(settings.ratio === null ? 0.9 : settings.ratio);
    $("frames").value = settings.frames || "";
    $("temperature").value = String(settings.temperature);
    $("max-tokens").value = settings.maxTokens || "";
    $("api-key").value = apiKey();
    $("keep-key").checked = keyIsKept();
    $("method-note").textContent = methodNote(model);
    $("ratio-out").textContent = `${Math.round(100 * Number($("ratio").value))} %`;
}

function takeSettings() {
    const ratio = Number($("ratio").value);
    settings.method = $("method").value;
    settings.ratio = ratio === 0.9 ? null : ratio;
    settings.frames = numberOf("frames", 1, 512);
    settings.temperature = numberOf("temperature", 0, 2) || 0;
    settings.maxTokens = numberOf("max-tokens", 1, 1 << 24);
    if ($("api-key").value.trim() !== apiKey() || $("keep-key").checked !== keyIsKept())
        setApiKey($("api-key").value, $("keep-key").checked);
    saveSettings();
}

/* ---- the player ---- */

export async function play(clip) {
    const dialog = $("player"), screen = $("screen");
    let url = "";
    $("player-title").textContent = clip.name;
    screen.replaceChildren(h("p", { class: "note" }, "Loading …"));
    dialog.addEventListener("close", () => {
        screen.replaceChildren();
        URL.revokeObjectURL(url);
    }, { once: true });
    dialog.showModal();
    try {
        const blob = await getBlob(`v1/files/${encodeURIComponent(clip.id)}/content`);
        if (!dialog.open)
            return;
        url = URL.createObjectURL(blob);
        const failed = () => screen.replaceChildren(h("p", { class: "error", role: "alert" }, "This browser cannot play the file. The model can still see it."));
        screen.replaceChildren(clip.still ? h("img", { src: url, alt: clip.name, onerror: failed })
            : h("video", { src: url, controls: true, autoplay: true, loop: true, muted: true, playsInline: true, onerror: failed }));
    } catch (e) {
        screen.replaceChildren(h("p", { class: "error", role: "alert" }, e.message));
    }
}

export function startDialogs(modelNow, forgetAll) {
    onMissingKey(askForKey);
    $("open-settings").addEventListener("click", () => {
        fillSettings(modelNow());
        $("settings").showModal();
    });
    $("settings").addEventListener("close", takeSettings);
    $("method").addEventListener("change", () => {
        $("method-note").textContent = methodNote(modelNow());
    });
    $("ratio").addEventListener("input", () => {
        $("ratio-out").textContent = `${Math.round(100 * Number($("ratio").value))} %`;
    });
    $("forget").addEventListener("click", () => {
        $("settings").close();
        forgetAll();
    });
    $("key-cancel").addEventListener("click", () => $("key").close("cancel"));
    $("open-help").addEventListener("click", () => $("help").showModal());
    for (const dialog of document.querySelectorAll("dialog")) // a click beside it closes it
        dialog.addEventListener("click", (e) => e.target === dialog && dialog.close());
}
