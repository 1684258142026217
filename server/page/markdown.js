// The little Markdown that models write: paragraphs, lists, headings, code, emphasis. Elements are made
// one by one, so nothing in a text can become HTML; what is not understood stays as it is.
import { h } from "./dom.js";

const INLINE = /`([^`\n]+)`|\*\*([^\n]+?)\*\*|\*([^\s*][^*\n]*?)\*(?!\w)/g;

function inline(text) {
    const parts = [];
    let at = 0;
    for (const m of text.matchAll(INLINE)) {
        parts.push(text.slice(at, m.index));
        if (m[1])
            parts.push(h("code", null, m[1]));
        else if (m[2])
            parts.push(h("strong", null, inline(m[2])));
        else
            parts.push(h("em", null, inline(m[3])));
        at = m.index + m[0].length;
    }
    parts.push(text.slice(at));
    return parts.filter((p) => p !== "");
}

const HEADING = /^#{1,6} +(.*)$/, BULLET = /^ {0,3}[-*+] +(.*)$/, NUMBER = /^ {0,3}(\d{1,3})[.)] +(.*)$/, FENCE = /^ {0,3}```/;

function list(lines, i, pattern, tag) {
    const items = [], first = pattern.exec(lines[i]);
    for (; i < lines.length; i++) {
        const m = pattern.exec(lines[i]);
        if (m)
            items.push([m[m.length - 1]]);
        else if (/^ {2,}\S/.test(lines[i]) && items.length)
            items[items.length - 1].push("\n", lines[i].trim());
        else if (!(lines[i].trim() === "" && i + 1 < lines.length && pattern.test(lines[i + 1])))
            break;
    }
    const start = tag === "ol" && first[1] !== "1" ? first[1] : undefined;
    return [h(tag, { start }, items.map((t) => h("li", null, inline(t.join(""))))), i];
}

function code(lines, i) {
    let end = i + 1;
    while (end < lines.length && !FENCE.test(lines[end]))
        end++;
    return [h("pre", null, h("code", null, lines.slice(i + 1, end).join("\n"))), end + 1];
}

const begins = (line) => HEADING.test(line) || BULLET.test(line) || NUMBER.test(line) || FENCE.test(line) || line.trim() === "";

function paragraph(lines, i) {
    let end = i + 1;
    while (end < lines.length && !begins(lines[end]))
        end++;
    return [h("p", null, inline(lines.slice(i, end).join("\n"))), end];
}

function block(lines, i) {
    if (FENCE.test(lines[i]))
        return code(lines, i);
    if (HEADING.test(lines[i]))
        return [h("p", { class: "heading" }, inline(HEADING.exec(lines[i])[1])), i + 1];
    if (BULLET.test(lines[i]))
        return list(lines, i, BULLET, "ul");
    if (NUMBER.test(lines[i]))
        return list(lines, i, NUMBER, "ol");
    return paragraph(lines, i);
}

export function markdown(text) {
    const lines = text.split("\n"), blocks = [];
    for (let i = 0; i < lines.length;) {
        if (lines[i].trim() === "") {
            i++;
            continue;
        }
        const [element, next] = block(lines, i);
        blocks.push(element);
        i = next;
    }
    return blocks;
}
