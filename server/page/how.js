// How an answer was made: speed, passes, the timeline of model and drafter, and what the drafter saw.
import { count, getting, h, percent, plural, s, seconds } from "./dom.js";
import { filmStrip } from "./strip.js";
import { DRAFTERS, PHASES, SPANS, VIEWS } from "./words.js";

// Accepted drafts in a row and then the model's own token: what one pass of the model gave.
export function passesOf(drafted) {
    return (drafted.match(/1*0|1+$/g) || []).map((run) => ({ drafted: run.split("1").length - 1, all: run.length }));
}

// The first token comes from the prefill. Few tokens make no speed.
export function speedOf(info) {
    return info.tokens > 8 && info.seconds.decode > 0 ? (info.tokens - 1) / info.seconds.decode : 0;
}

const speed = (v) => (v >= 100 ? count(Math.round(v)) : v.toFixed(1));

function tile(value, unit, name, note) {
    return h("div", { class: "tile" }, h("dt", null, name),
        h("dd", null, h("strong", null, value), unit ? ` ${unit}` : "", note ? h("small", null, note) : null));
}

function tiles(turn, plain) {
    const i = turn.info, v = speedOf(i), list = [];
    if (i.drafter !== "none")
        list.push(tile(i.tokens_per_pass.toFixed(1), "", "Tokens a pass", `${plural(i.tokens, "token")}, ${plural(i.passes, "pass", "passes")}`));
    if (v)
        list.push(tile(speed(v), "tokens/s", "Speed", plain && i.drafter !== "none" ? `${(v / plain).toFixed(1)} × plain decoding` : null));
    if (i.proposed)
        list.push(tile(percent(i.acceptance), "", "Drafts accepted", `${count(i.accepted)} of ${count(i.proposed)} proposed`));
    if (i.seconds.first_token)
        list.push(tile(seconds(i.seconds.first_token), "", "First word after", `${seconds(i.seconds.total)} in all`));
    return h("dl", { class: "tiles" }, list);
}

function legend(entries) {
    return h("p", { class: "legend" }, entries.map(([name, text]) => h("span", { class: "key" }, h("i", { class: `dot ${name}` }), text)));
}

/* ---- passes ---- */

function passChart(turn) {
    const passes = passesOf(turn.drafted), n = passes.length, starts = [0];
    turn.lengths.forEach((chars, i) => starts.push(starts[i] + chars));
    const most = passes.reduce((m, p) => Math.max(m, p.all), 1);
    const w = 1000 / Math.max(n, 24);
    let token = 0;
    const bars = passes.map((p, i) => s("g", null,
        s("title", null, `${plural(p.all, "token")}: ${turn.text.slice(starts[token], starts[token += p.all])}`),
        p.drafted ? s("rect", { class: "drafted", x: i * w + w * 0.1, width: w * 0.8, y: 100 - 100 * p.drafted / most, height: 100 * p.drafted / most }) : null,
        p.all > p.drafted ? s("rect", { class: "decoded", x: i * w + w * 0.1, width: w * 0.8, y: 100 - 100 * p.all / most, height: 100 / most }) : null));
    const label = `accepted drafts, and on top the token that the model adds. The best pass gave ${plural(most, "token")}.`;
    return h("figure", { class: "chart" },
        h("figcaption", null, h("b", null, "Tokens of each pass: "), label),
        s("svg", { class: "bars", viewBox: "0 0 1000 100", preserveAspectRatio: "none", role: "img", "aria-label": `Tokens of each pass: ${label}` }, bars));
}

/* ---- speeds ---- */

function bar(name, value, most, kind) {
    const fill = h("span", { class: `fill ${kind}` });
    fill.style.width = `${Math.max(1, 100 * value / most)}%`;
    return h("div", { class: "versus" }, h("span", { class: "who" }, name), h("span", { class: "rail" }, fill), h("span", { class: "value" }, `${speed(value)} tokens/s`));
}

function comparison(turn, compare, done) {
    const box = h("div", { class: "chart", tabindex: "-1", role: "group", "aria-label": "Compared with plain decoding" });
    const show = () => {
        const v = speedOf(turn.info), p = turn.plain;
        if (!p || !v) {
            const button = h("button", { type: "button", class: "small", onclick: start }, "Compare with plain decoding");
            box.replaceChildren(h("p", { class: "note" }, "Ask the model once more without a drafter, to compare speed and text. "), button);
            return;
        }
        const most = Math.max(v, p.speed), same = p.same ? "The text is the same, token by token." : "The texts differ: this must not happen. Please report it.";
        box.replaceChildren(
            h("p", null, h("b", null, `${(v / p.speed).toFixed(1)} × the speed of plain decoding. `), h("span", { class: p.same ? "" : "error" }, same)),
            bar("Drafting", v, most, "drafted"), bar("Plain", p.speed, most, "decoded"));
    };
    const start = async () => {
        const state = getting("Plain decoding runs");
        box.replaceChildren(state);
        box.focus({ preventScroll: true });
        try {
            await compare((n) => state.set(`Plain decoding runs: ${plural(n, "token")}`));
            show();
            done();
        } catch (e) {
            show();
            box.append(h("p", { class: "error", role: "alert" }, e.message));
        }
    };
    show();
    return box;
}

/* ---- timeline ---- */

function ticks(from, to) {
    const step = [1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60, 120, 300, 600].find((x) => (to - from) / x <= 6) || (to - from) / 5;
    const list = [];
    for (let t = Math.ceil(from / step - 1e-9) * step; t <= to; t += step)
        list.push({ t, text: step < 0.01 ? `${(t * 1000).toFixed(step < 1e-3 ? 1 : 0)} ms` : `${t.toFixed(step < 0.1 ? 2 : step < 1 ? 1 : 0)} s` });
    return list;
}

function lane(name, spans, from, to) {
    const rects = spans.filter((x) => x[3] > from && x[2] < to).map(([, what, begin, end, rows]) => {
        const x = 1000 * (Math.max(begin, from) - from) / (to - from), width = 1000 * (Math.min(end, to) - Math.max(begin, from)) / (to - from);
        return s("rect", { class: `span ${what in SPANS ? what : "other"}`, x: x.toFixed(2), width: Math.max(width, 0.6).toFixed(2), y: 0, height: 20 },
            s("title", null, `${SPANS[what] || what}: ${plural(rows, "row")}, ${seconds(end - begin)}`));
    });
    return h("div", { class: "lane" }, h("span", { class: "who" }, name),
        s("svg", { viewBox: "0 0 1000 20", preserveAspectRatio: "none", "aria-hidden": "true" }, rects));
}

function drawTimeline(box, spans, from, to) {
    const sides = { model: "Model", drafter: "Drafter" };
    const axis = h("div", { class: "axis", "aria-hidden": "true" }, ticks(from, to).map(({ t, text }) => {
        const mark = h("span", null, text);
        mark.style.left = `${100 * (t - from) / (to - from)}%`;
        return mark;
    }));
    box.replaceChildren(
        ...Object.entries(sides).filter(([side]) => spans.some((x) => x[0] === side)).map(([side, name]) => lane(name, spans.filter((x) => x[0] === side), from, to)),
        h("div", { class: "lane" }, h("span", { class: "who" }), axis));
}

function timeline(info) {
    const spans = info.spans, end = spans.reduce((m, x) => Math.max(m, x[3]), 0), begin = spans.reduce((m, x) => Math.min(m, x[2]), end);
    const first = spans.find((x) => x[1] !== "prefill");
    const parts = { "Whole answer": [begin, end], Decoding: [first ? first[2] : begin, end] };
    if (first)
        parts["First steps"] = [first[2], Math.min(end, first[2] + Math.max(0.02, (end - first[2]) / 8))];
    const box = h("div", { class: "lanes" });
    const name = `part-${Math.random().toString(36).slice(2)}`;
    const choose = Object.entries(parts).map(([label, [from, to]], i) => h("label", null,
        h("input", { type: "radio", name, checked: i === 1 || undefined, onchange: () => drawTimeline(box, spans, from, to) }), h("span", null, label)));
    drawTimeline(box, spans, ...parts.Decoding);
    const whats = [...new Set(spans.map((x) => x[1]))].filter((w) => w in SPANS);
    return h("div", { class: "chart", role: "group", "aria-label": "Timeline of model and drafter" },
        h("div", { class: "chart-head" }, h("b", null, "Timeline"), h("span", { class: "choice", role: "radiogroup", "aria-label": "Part of the timeline" }, choose)),
        box, legend(whats.map((w) => [w, SPANS[w]])));
}

function table(info) {
    const rows = Object.entries(PHASES).filter(([k]) => info.seconds[k] >= 0.0005 || k === "total");
    return h("details", null, h("summary", null, "Seconds by phase"),
        h("table", null, h("tbody", null, rows.map(([k, name]) => h("tr", null, h("th", { scope: "row" }, name), h("td", null, seconds(info.seconds[k])))))));
}

/* ---- what the drafter sees ---- */

function seenText(name, view) {
    const all = view.frames * view.height * view.width;
    if (!view.kept)
        return `With view “${name}” the drafter sees none of the ${count(all)} video tokens: it works from text alone.`;
    return `With view “${name}” the drafter sees ${count(view.kept)} of ${count(all)} video tokens (${percent(view.kept / all)}). The model itself always sees all of them.`;
}

function viewPicker(turn, clip, views, getView) {
    const strip = filmStrip(clip, { bare: true }), text = h("p", { class: "note", "aria-live": "polite" });
    const own = turn.info.view_name;
    const select = h("select", { "aria-label": "View" }, [...views.keys()].map((name) =>
        h("option", { value: name, selected: name === own || undefined }, `${name}: ${VIEWS[name] || "another choice"}${name === own && turn.info.view ? " (this answer)" : ""}`)));
    const maps = new Map(turn.info.view ? [[own, turn.info.view]] : []);
    const show = async () => {
        const name = select.value;
        if (!maps.has(name)) {
            text.textContent = "Asking the server …";
            try {
                maps.set(name, await getView(views.get(name)));
            } catch (e) {
                text.textContent = e.message;
                strip.show(null);
                return;
            }
        }
        if (select.value !== name)
            return;
        const view = maps.get(name);
        text.textContent = view ? seenText(name, view) : "There is no video in this prompt that the drafter could see.";
        strip.show(view);
    };
    select.addEventListener("change", show);
    show();
    return [h("div", { class: "chart-head" }, h("span", null, "Tokens that the drafter does not see are dark."), select), strip, text];
}

// By name of the view: a method that has it, or null for that of this answer.
function viewsOf(turn, methods) {
    const views = new Map();
    for (const m of methods)
        if (m.reads_prompt && !views.has(m.view_name))
            views.set(m.view_name, m.name);
    if (turn.info.view)
        views.set(turn.info.view_name, null);
    return views;
}

// Film strips are heavy: those of older answers are made when somebody opens them.
function viewPart(turn, ctx) {
    const views = viewsOf(turn, ctx.methods);
    if (!ctx.clip || !views.size)
        return null;
    const inside = h("div", { class: "inside" });
    const open = () => inside.childNodes.length || inside.append(...viewPicker(turn, ctx.clip, views, ctx.getView));
    if (ctx.newest)
        open();
    return h("details", { class: "chart view", open: ctx.newest || undefined, ontoggle: (e) => e.target.open && open() }, h("summary", null, h("b", null, "What the drafter sees")), inside);
}

/* ---- all of it ---- */

// ctx: {plain: tokens/s of plain decoding or 0, newest: of its conversation, clip or null, methods, compare(onToken), getView(method)}
export function howPanel(turn, ctx) {
    const i = turn.info, drafts = i.drafter !== "none";
    const by = drafts ? `Method ${i.method}: ${DRAFTERS[i.drafter] || i.drafter} proposes tokens, the model verifies them.`
        : "Plain decoding: the model made each token in a pass of its own.";
    let figures = tiles(turn, ctx.plain);
    const measured = () => {
        const better = tiles(turn, turn.plain.speed);
        figures.replaceWith(better);
        figures = better;
    };
    return h("section", { class: "how", "aria-label": "How this answer was made" },
        h("p", { class: "method" }, by),
        drafts ? legend([["drafted", "drafted, and accepted by the model"], ["decoded", "decoded by the model itself"]]) : null,
        figures,
        drafts && turn.drafted.length > 1 ? passChart(turn) : null,
        drafts && speedOf(i) ? comparison(turn, ctx.compare, measured) : null,
        i.spans && i.spans.length ? timeline(i) : null,
        table(i),
        viewPart(turn, ctx));
}
