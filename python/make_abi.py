#!/usr/bin/env python3
"""Write prevue/_abi.py, the layout of the C library for ctypes, from its header.

    python3 python/make_abi.py            write it
    python3 python/make_abi.py --check    fail when it is not what the header says

The header is plain C in a regular form, so that a few patterns are enough: enumerations, structs, types of callbacks and
PV_API functions. Anything else is an error, not a guess. python/tests/test_layout.py compares the result with what a C
compiler makes of the same header.
"""

import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
HEADER = os.path.join(HERE, "..", "include", "prevue", "prevue.h")
OUT = os.path.join(HERE, "prevue", "_abi.py")

# C type: (ctypes type, type in Python)
SCALARS = {
    "void": ("None", "None"),
    "bool": ("c_bool", "bool"),
    "char": ("c_char", "bytes"),
    "int": ("c_int", "int"),
    "unsigned": ("c_uint", "int"),
    "float": ("c_float", "float"),
    "double": ("c_double", "float"),
    "size_t": ("c_size_t", "int"),
    "uint8_t": ("c_uint8", "int"),
    "int32_t": ("c_int32", "int"),
    "int64_t": ("c_int64", "int"),
    "uint64_t": ("c_uint64", "int"),
}
# Strings that are not NUL-terminated, or that the caller frees: their address is needed, not their bytes.
ADDRESSES = {("pv_event", "text"), ("pv_token_bytes", "return")}


class Parser:
    def __init__(self, text):
        text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
        text = re.sub(r"^\s*#.*(\\\n.*)*$", "", text, flags=re.M)
        text = re.sub(r'extern "C" \{', "", text)
        text = re.sub(r"static inline .*?\n\}\n", "", text, flags=re.S)
        self.text = text
        self.opaque = set()
        self.constants = {}
        self.callbacks = {}
        self.structs = {}
        self.order = []  # of both
        self.functions = {}
        self.parse()

    def parse(self):
        declaration = re.compile(r"\s*((?:[^;{}]|\{[^{}]*\})+);", re.S)
        at = 0
        while self.text[at:].strip(" \n}"):
            match = declaration.match(self.text, at)
            if not match:
                raise SystemExit("make_abi: cannot read: " + self.text[at : at + 80].strip())
            self.declare(" ".join(match.group(1).split()))
            at = match.end()

    def declare(self, text):
        for pattern, act in (
            (r"typedef struct (\w+) (\w+)$", self.add_opaque),
            (r"struct (\w+)$", lambda name: None),
            (r"enum (?:\w+ )?\{(.*)\}$", self.add_enum),
            (r"typedef (.*?)\(\*(\w+)\)\((.*)\)$", self.add_callback),
            (r"struct (\w+) \{(.*)\}$", self.add_struct),
            (r"PV_API (.*?)(\w+)\((.*)\)$", self.add_function),
        ):
            match = re.match(pattern, text)
            if match:
                act(*match.groups())
                return
        raise SystemExit("make_abi: unknown declaration: " + text)

    def add_opaque(self, name, alias):
        self.opaque.add(alias)

    def add_enum(self, body):
        value = -1
        for item in filter(None, (i.strip() for i in body.split(","))):
            name, _, given = (part.strip() for part in item.partition("="))
            value = eval(given, {}, dict(self.constants)) if given else value + 1
            self.constants[name] = value

    def add_callback(self, result, name, arguments):
        self.callbacks[name] = self.callback(result, arguments)
        self.order.append(name)

    def callback(self, result, arguments):
        types = [self.ctype(result.strip() or "void", "", callback=True)]
        types += [self.argument(a, callback=True) for a in self.split(arguments)]
        return "CFUNCTYPE(%s)" % ", ".join(types)

    def add_function(self, result, name, arguments):
        back = "c_void_p" if (name, "return") in ADDRESSES else self.ctype(*self.pointers(result.strip()))
        self.functions[name] = (back, [self.argument(a) for a in self.split(arguments)])

    def add_struct(self, name, body):
        fields = []
        for line in filter(None, (i.strip() for i in body.split(";"))):
            inner = re.match(r"(.*?)\(\*(\w+)\)\((.*)\)$", line)
            if inner:
                fields.append((inner.group(2), self.callback(inner.group(1), inner.group(3))))
                continue
            base, _, first = re.match(r"((?:const )?(?:struct |enum )?\w+)( +|(?=\*))(.*)$", line).groups()
            for declarator in first.split(","):
                stars, ident, size = re.match(r"\s*((?:\*|const| )*)(\w+)(?:\[(\d+)\])?$", declarator).groups()
                kind = self.ctype(base, stars.replace(" ", "").replace("const", ""))
                if (name, ident) in ADDRESSES:
                    kind = "c_void_p"
                fields.append((ident, "%s * %s" % (kind, size) if size else kind))
        self.structs[name] = fields
        self.order.append(name)

    @staticmethod
    def split(arguments):
        return [] if arguments.strip() == "void" else [a.strip() for a in arguments.split(",")]

    @staticmethod
    def pointers(text):
        stars = "*" * text.count("*")
        return re.sub(r"\*(\s*const)?", "", text).strip(), stars

    def argument(self, text, callback=False):
        base, stars = self.pointers(text)
        words = base.split()
        # The last word is the name, unless there is none.
        if len(words) > 1 and words[-2] not in ("struct", "enum", "const"):
            words.pop()
        elif len(words) > 2 and words[-3] in ("struct", "enum"):
            words.pop()
        return self.ctype(" ".join(words), stars, callback)

    def ctype(self, base, stars, callback=False):
        constant = base.startswith("const ")
        base = base.replace("const ", "").strip()
        if base.startswith("enum "):
            kind = "c_int"
        elif base.startswith("struct "):
            kind = base[len("struct ") :]
            if kind not in self.structs:  # declared later or elsewhere
                return "c_void_p"
        elif base in self.callbacks:
            kind = base
        elif base in self.opaque:
            kind, stars = "c_void_p", stars[1:]
        elif base == "void":
            if not stars:
                return "None"
            kind, stars = "c_void_p", stars[1:]
        elif base == "char" and stars:
            # A callback's string may have no NUL; a string that the caller frees must keep its address.
            freed = len(stars) > 1 and not constant
            kind, stars = ("c_void_p" if callback or freed else "c_char_p"), stars[1:]
        elif base in SCALARS:
            kind = SCALARS[base][0]
        else:
            raise SystemExit("make_abi: unknown type: " + base)
        for _ in stars:
            kind = "POINTER(%s)" % kind
        return kind


def hint(kind):
    """The type of a field for a type checker."""
    if kind.startswith("c_char *"):
        return "bytes"
    for ctype, python in SCALARS.values():
        if kind == ctype:
            return python
    return "Any"


def render(parsed):
    lines = [
        '"""The layout of libprevue for ctypes. Written by make_abi.py from include/prevue/prevue.h: do not edit."""',
        "",
        "from ctypes import (",
        "    CFUNCTYPE, POINTER, Structure, c_bool, c_char, c_char_p, c_double, c_float, c_int, c_int32, c_int64, c_size_t,",
        "    c_uint, c_uint8, c_uint64, c_void_p,",
        ")",
        "from typing import Any, Dict, List, Tuple",
        "",
        "",
        "class Struct(Structure):",
        '    """A C struct. Assigning to a field that it does not have is an error, and so is a number too large for it."""',
        "",
        "    def __setattr__(self, name: str, value: Any) -> None:",
        "        getattr(type(self), name)",
        "        super().__setattr__(name, value)",
        "        kept = getattr(self, name)  # ctypes drops the bits that do not fit",
        '        if type(kept) is int and hasattr(value, "__index__") and kept != value:',
        '            raise OverflowError("%s: the number %d is too large, or negative" % (name, value))',
        "",
        "",
    ]
    lines += ["%s = %d" % item for item in parsed.constants.items()]
    for name in parsed.order:
        if name in parsed.callbacks:
            lines += ["", "%s = %s" % (name, parsed.callbacks[name])]
            continue
        fields = parsed.structs[name]
        lines += ["", "", "class %s(Struct):" % name]
        lines += ["    %s: %s" % (field, hint(kind)) for field, kind in fields]
        lines += ["    _fields_ = ["]
        lines += ['        ("%s", %s),' % item for item in fields]
        lines += ["    ]", ""]
    lines += ["", "STRUCTS: List[Any] = ["]
    lines += ["    %s," % name for name in parsed.structs]
    lines += ["]", "", "# Name: (result, arguments)", "FUNCTIONS: Dict[str, Tuple[Any, List[Any]]] = {"]
    for name, (result, arguments) in parsed.functions.items():
        lines.append('    "%s": (%s, [%s]),' % (name, result, ", ".join(arguments)))
    lines += ["}", ""]
    return "\n".join(lines)


def main():
    with open(HEADER, encoding="utf-8") as f:
        text = render(Parser(f.read()))
    if "--check" in sys.argv[1:]:
        with open(OUT, encoding="utf-8") as f:
            if f.read() != text:
                raise SystemExit("python/prevue/_abi.py is not what prevue.h says: run python3 python/make_abi.py")
        return
    with open(OUT, "w", encoding="utf-8") as f:
        f.write(text)


if __name__ == "__main__":
    main()
