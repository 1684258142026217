// Elements and numbers. Text becomes text nodes here and nowhere else, so it can never be HTML.

const SVG = "http://www.w3.org/2000/svg";

function fill(e, attributes, children) {
    for (const [name, value] of Object.entries(attributes || {})) {
        if (value === undefined || value === null || value === false)
            continue;
        if (name.startsWith("on"))
            e.addEventListener(name.slice(2), value);
        else if (name === "class")
            e.setAttribute("class", value);
        else if (name in e && !(e instanceof SVGElement) && typeof value !== "string")
            e[name] = value;
        else
            e.setAttribute(name, value === true ? "" : value);
    }
    e.append(...children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== false));
    return e;
}

// h("p", {class: "note"}, "text", element): an element of HTML; s(...): of SVG.
export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
export const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);
export const $ = (id) => document.getElementById(id);

const ICONS = {
    menu: "M4 7h16M4 12h16M4 17h16",
    close: "M6 6l12 12M18 6L6 18",
    plus: "M12 5v14M5 12h14",
    clip: "M20 11.5l-8.3 8.3a5 5 0 0 1-7.1-7.1l8.6-8.6a3.3 3.3 0 0 1 4.7 4.7l-8.4 8.4a1.7 1.7 0 0 1-2.4-2.4l7.6-7.6",
    send: "M12 19V5M6 11l6-6 6 6",
    stop: "M7 7h10v10H7z",
    copy: "M9 9h10v11H9zM5 15V4h10",
    done: "M5 13l4 4L19 7",
    again: "M20 11a8 8 0 1 0-2.3 6.3M20 5v6h-6",
    play: "M8 5l11 7-11 7z",
    trash: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13",
    sun: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8M12 2v3M12 19v3M2 12h3M19 12h3M5 5l2 2M17 17l2 2M19 5l-2 2M7 17l-2 2",
    moon: "M20 14A8 8 0 1 1 10 4a7 7 0 0 0 10 10z",
    auto: "M12 4a8 8 0 1 0 0 16zM12 4a8 8 0 0 1 0 16",
    settings: "M4 7h9M17 7h3M4 17h3M11 17h9M15 5v4M9 15v4",
    keyboard: "M3 6h18v12H3zM7 10h.01M11 10h.01M15 10h.01M8 14h8",
};

export function icon(name) {
    return s("svg", { class: "i", viewBox: "0 0 24 24", "aria-hidden": "true" }, s("path", { d: ICONS[name] }));
}

export function iconButton(name, label, onclick, text) {
    return h("button", { type: "button", class: text ? "small" : "small icon", title: label, "aria-label": text ? undefined : label, onclick },
        icon(name), text ? h("span", null, text) : null);
}

// Said to screen readers, at most one thing at a time.
export function announce(text) {
    $("status").textContent = text;
}

const grouped = new Intl.NumberFormat("en");
export const count = (n) => grouped.format(n);
export const plural = (n, one, many) => `${count(n)} ${n === 1 ? one : many || one + "s"}`;

export function seconds(t) {
    if (t < 0.001)
        return `${Math.round(t * 1e6)} µs`;
    if (t < 1)
        return `${Math.round(t * 1000)} ms`;
    if (t < 100)
        return `${t.toFixed(t < 10 ? 2 : 1)} s`;
    return `${Math.floor(t / 60)}:${String(Math.floor(t % 60)).padStart(2, "0")} min`;
}

export function bytes(n) {
    const units = ["bytes", "KB", "MB", "GB"];
    let i = 0;
    while (n >= 1000 && i < 3) {
        n /= 1000;
        i++;
    }
    return `${i && n < 10 ? n.toFixed(1) : Math.round(n)} ${units[i]}`;
}

export const percent = (x) => `${x > 0 && x < 0.01 ? (x * 100).toFixed(1) : Math.round(x * 100)} %`;

// A line that says what is going on; set(text) changes it.
export function getting(text) {
    const words = h("span", null, text);
    const e = h("p", { class: "getting" }, h("span", { class: "spin", "aria-hidden": "true" }), words);
    e.set = (t) => {
        words.textContent = t;
    };
    return e;
}
