#!/usr/bin/env python3
"""The rules of the house that a program can check: layers, lengths, dead files, banned words,
the glossary, opening comments, tours, numbers of decisions, references of documents.

usage: test_tidy.py [BUILD_FOLDER]     run in the source folder; without a build folder the rule
                                       about unused sources has nothing to look at

Each rule is a function from a tree (path -> text) to violations, so the self-test can plant one
violation of every rule in a small tree made up in memory and see it caught.
"""
import os
import re
import subprocess
import sys

MAX_LINES = 600
MAX_COLUMNS = 100
MAX_PROSE_COLUMNS = 120  # of documents; rows of tables may be longer
MAX_FUNCTION_LINES = 70

# The table of ARCHITECTURE.md, "The rooms, bottom up".
LAYERS = {
    "base": 0,
    "tensor": 1, "mesh": 1,
    "format": 2, "graph": 2, "rendezvous": 2,
    "data": 3, "ops": 3,
    "device": 4,
    "comm": 5, "nn": 5, "pass": 5,
    "plan": 6,
    "engine": 7,
    "checkpoint": 8, "observe": 8,
    "recipe": 9, "views": 9,
    "train": 10, "launch": 10,
    "preflight": 11,
    "cli": 12,
}

# Concrete backends, and who may name them besides src/cli and themselves.
BACKENDS = {
    "device/ref": {
        "device/cpu", "device/cuda", "device/null",
    },
    "device/null": set(),
    # A GPU's optimizer can run on the CPU of its host.
    "device/cpu": {"device/far", "device/cuda"},
    "device/far": set(),
    # Gives its queue calls of NCCL.
    "device/cuda": {"comm/nccl"},
    "comm/self": set(),
    "comm/shm": set(),
    "comm/mpi": set(),
    "comm/ucx": set(),
    # comm/data.c chooses it for a device.
    "comm/nccl": {"comm"},
    "engine/sim": set(),
}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)
# A definition at the left margin: from its signature to the brace that closes it.
FUNCTION = re.compile(r"^(?!typedef\b|#)\w[^;{}=#]*\)\s*\{\n.*?^\}$", re.M | re.S)
SLASH = "/"  # so that this file does not contain the paths it bans

BANNED_EVERYWHERE = [
    (re.compile(r"\b(TODO|FIXME|XXX)\b"), "unfinished work: do it, or leave no trace of it"),
    (re.compile(r"\bnot (yet )?implemented\b", re.I), "say what is refused and what to do instead"),
    (re.compile(r"(?<![\w.])" + SLASH + r"(work|root|home)" + SLASH),
     "a path of one machine"),
    (re.compile(r"\b(pypi\.org|pythonhosted\.org|deb\.debian\.org|snapshot\.debian\.org|"
                r"docker\.io|ghcr\.io|artifactory)\b", re.I), "a registry's host"),
    (re.compile(r"\b(issue|bug|ticket|PR|pull request|fixes|closes)s? ?#?\d+\b|\w#\d{2,}\b"),
     "an issue number: say what was wrong instead"),
]
BANNED_IN_C = [
    (re.compile(r"\b(v?sprintf|strcpy|strcat|gets|strtok)\s*\("), "no bound: use the n form"),
    (re.compile(r"^\s*#\s*(if|ifdef|ifndef|elif)\b.*CUDA", re.M),
     "CUDA belongs behind the device's table"),
    (re.compile(r"\bO_CREAT\b(?!\s*\|\s*O_EXCL)"),
     "O_CREAT | O_EXCL: what lies there may be another user's link"),
]
PROCESS = re.compile(r"(?<![\w.])(v?fork|popen|system|posix_spawnp?|execv[pe]*|tri_command_run|"
                     r"u?sleep|(clock_)?nanosleep|tri_os\.sleep_ns)\s*\(")
EXIT = re.compile(r"(?<![\w.>])(_?exit|quick_exit|_Exit)\s*\(")
EXIT_ALLOWED = ("src/cli/", "src/launch/", "tests/", "examples/", "bench/")
DURATION = re.compile(r"%(\.\d+|\.\*)?(ll?|z)?[dugf] (s|ms|us)\b")
DURATION_ALLOWED = ("src/base/quantity.c", "src/base/log.c")  # bench/startup reads log.c's

ROOMS = "rooms.dir/"
SELF = "tests/tidy/test_tidy.py"
# Records of measurement and foreign text: no limit on their lines.
FOREIGN = ("tests/fuzz/corpus/", "tests/parity/goldens/", "recipes/data/")


def load_tree():
    """Every file that belongs to the project: tracked, or new and not ignored."""
    try:
        command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
        names = subprocess.run(command, capture_output=True, check=True).stdout.decode()
        paths = [p for p in names.split("\0") if p]
    except (OSError, subprocess.CalledProcessError):  # an unpacked archive
        paths = []
        for folder, folders, files in os.walk("."):
            folders[:] = [f for f in folders if f not in (".git", "build", "runs", "__pycache__")]
            paths += [os.path.relpath(os.path.join(folder, f), ".") for f in files]
    tree = {}
    for path in sorted(set(paths)):
        try:
            with open(path, encoding="utf-8") as f:
                tree[path] = f.read()
        except (UnicodeDecodeError, FileNotFoundError, IsADirectoryError):
            continue  # binary, or deleted but not yet committed
    return tree


def is_c(path):
    return path.endswith((".c", ".h", ".cu", ".cpp"))


def is_code(path, text):
    return is_c(path) or path.endswith((".py", ".sh", ".cmake")) or text.startswith("#!") \
        or os.path.basename(path) == "CMakeLists.txt"


def line_of(text, position):
    return text.count("\n", 0, position) + 1


def without_comments(text):
    """C with comments and the insides of strings blanked, so that line numbers stay true."""
    def blank(match):
        found = match.group(0)
        if found.startswith("/"):
            return re.sub(r"[^\n]", " ", found)
        return found[0] + " " * (len(found) - 2) + found[-1]
    pattern = r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\''
    return re.sub(pattern, blank, text, flags=re.S)


def room_of(path):
    parts = path.split("/")
    return parts[1] if len(parts) > 2 and parts[0] == "src" else None


def resolve(tree, path, kind, target):
    """The project's file an #include names, or None for a system header."""
    if target.startswith("trireme/"):
        return "include/" + target
    if kind == "<":
        return None
    beside = os.path.normpath(os.path.join(os.path.dirname(path), target))
    if beside in tree:
        return beside
    for base in ("src/", "tests/", "include/"):
        if base + target in tree:
            return base + target
    return "src/" + target if "/" in target else beside


def layers(tree):
    """A folder includes its own headers and those of lower layers only."""
    for path, text in tree.items():
        if not is_c(path) or not path.startswith(("src/", "include/")):
            continue
        room = room_of(path)
        if path.startswith("src/") and room not in LAYERS:
            yield path, 1, f"src/{room} is no room of the architecture's table"
            continue
        for match in INCLUDE.finditer(text):
            target = resolve(tree, path, *match.groups())
            if target is None or target.startswith("include/"):
                continue
            line = line_of(text, match.start())
            if room is None:
                yield path, line, f"a public header includes the private {target}"
                continue
            other = room_of(target)
            if other not in LAYERS:
                yield path, line, f"includes {target}, which is in no room"
            elif other != room and LAYERS[other] >= LAYERS[room]:
                yield path, line, (f"{room} (layer {LAYERS[room]}) includes {target} "
                                   f"(layer {LAYERS[other]}): only lower layers")


def circles(tree):
    """No source includes, directly or through others, a header whose source includes its own."""
    uses = {}  # "comm/shm/queue" -> what queue.c and queue.h include
    for path, text in tree.items():
        if not is_c(path) or not path.startswith("src/"):
            continue
        module = os.path.splitext(path)[0]
        for match in INCLUDE.finditer(text):
            target = resolve(tree, path, *match.groups())
            if target and target.startswith("src/") and os.path.splitext(target)[0] != module:
                uses.setdefault(module, {})[os.path.splitext(target)[0]] = (
                    path, line_of(text, match.start()))
    for module in list(uses):  # a header without a source is only a way to what it includes
        for header in [target for target in uses[module] if target + ".c" not in tree]:
            reached, seen = [header], set()
            while reached:
                way = reached.pop()
                if way in seen or way + ".c" in tree:
                    uses[module].setdefault(way, uses[module][header])
                    continue
                seen.add(way)
                reached += uses.get(way, {})
            uses[module].pop(header, None)
        uses[module].pop(module, None)
    done = set()

    def visit(module, above):
        done.add(module)
        for target, (path, line) in uses.get(module, {}).items():
            if target in above:
                circle = above[above.index(target):] + [target]
                yield path, line, "a circle of files: " + " -> ".join(circle)
            elif target not in done:
                yield from visit(target, above + [target])

    for module in sorted(uses):
        if module not in done:
            yield from visit(module, [module])


def backends(tree):
    """Concrete backends are named by src/cli and by themselves only."""
    for path, text in tree.items():
        if not is_c(path) or not path.startswith("src/") or path.startswith("src/cli/"):
            continue
        for match in INCLUDE.finditer(text):
            for backend, friends in BACKENDS.items():
                if not match.group(2).startswith(backend + "/"):
                    continue
                if not any(path.startswith(f"src/{own}/") for own in friends | {backend}):
                    yield path, line_of(text, match.start()), f"names the backend {backend}"


def lengths(tree):
    """Files of 600 lines, functions of 70, lines of 100 columns, no tabs, no trailing blanks,
    no marks of a merge."""
    for path, text in tree.items():
        if path.startswith(FOREIGN):
            continue
        lines = text.split("\n")
        code = is_code(path, text)
        document = path.endswith(".md")
        if code and len(lines) - 1 > MAX_LINES:
            yield path, len(lines) - 1, f"longer than {MAX_LINES} lines: make it two files"
        for function in FUNCTION.finditer(text) if is_c(path) else ():
            long = function.group(0).count("\n") + 1
            if long > MAX_FUNCTION_LINES:
                yield path, line_of(text, function.start()), f"a function of {long} lines: split it"
        if text and not text.endswith("\n") and not path.endswith(".json"):
            yield path, len(lines), "no newline at the end"
        for number, line in enumerate(lines, 1):
            if code and len(line) > MAX_COLUMNS:
                yield path, number, f"{len(line)} columns, more than {MAX_COLUMNS}"
            if "\t" in line and os.path.basename(path) not in ("Makefile", ".gitmodules"):
                yield path, number, "a tab"
            if line.startswith(("<" * 7 + " ", ">" * 7 + " ")):
                yield path, number, "a conflict of a merge that nobody resolved"
            if document and len(line) > MAX_PROSE_COLUMNS and not line.startswith("|"):
                yield path, number, f"{len(line)} columns, more than {MAX_PROSE_COLUMNS}"
            if line != line.rstrip():
                yield path, number, "blanks at the end of the line"


def words(tree):
    """Banned words and calls."""
    for path, text in tree.items():
        if path in (SELF, "LICENSE") or path.startswith(FOREIGN):
            continue
        for pattern, why in BANNED_EVERYWHERE:
            for match in pattern.finditer(text):
                found = match.group(0).strip()
                yield path, line_of(text, match.start()), f"'{found}': {why}"
        if not is_c(path):
            continue
        code = without_comments(text)
        for pattern, why in BANNED_IN_C:
            if path.startswith("tests/") and "O_CREAT" in pattern.pattern:  # in their own folders
                continue
            if pattern.pattern.endswith("CUDA") and path.startswith("src/device/cuda/"):
                continue
            for match in pattern.finditer(code):
                found = match.group(0).strip()
                yield path, line_of(code, match.start()), f"'{found}': {why}"
        for match in PROCESS.finditer(code) if path.startswith("tests/unit/") else ():
            yield path, line_of(code, match.start()), \
                f"{match.group(1)} in a unit test: tests/README.md says what a kind may use"
        if not path.startswith(EXIT_ALLOWED):
            for match in EXIT.finditer(code):
                yield path, line_of(code, match.start()), "exit in a helper: return a status"
        if path.startswith("src/") and path not in DURATION_ALLOWED:
            for match in DURATION.finditer(text):
                yield path, line_of(text, match.start()), (
                    "a duration for readers: tri_duration_text, or tri_seconds_text for a setting")


def dead_files(tree):
    """Headers that nobody includes, pages, recipes and scripts that nobody mentions."""
    uses = {path: {resolve(tree, path, *match.groups()) for match in INCLUDE.finditer(text)}
            for path, text in tree.items() if is_c(path)}
    included = set().union(*(found - {path} for path, found in uses.items()))
    for path in tree:
        if path.endswith(".h") and path not in included:
            yield path, 1, "nobody includes this header"
    for path in tree:
        if not path.startswith(("recipes/", "docs/", "scripts/", "sites/", "examples/", "bench/")):
            continue
        name = os.path.basename(path)
        folder = os.path.basename(os.path.dirname(path))
        listed = (name, f"{folder}/", os.path.splitext(name)[0])
        if not any(word in text for other, text in tree.items() if other != path
                   for word in (listed if path.startswith("docs/decisions/") else listed[::2])):
            yield path, 1, "nothing mentions this file"


def symbols(build):
    """object file -> (symbols it defines, symbols it needs), as nm sees them in the build."""
    paths = [os.path.join(folder, name) for folder, _, files in os.walk(build) for name in files
             if name.endswith(".o")]
    objects = {os.path.relpath(path, build): (set(), set()) for path in paths}
    if not paths:
        return objects
    out = subprocess.run(["nm", "-g", "-A", "--format=posix", *paths], capture_output=True,
                         text=True, check=False).stdout
    for line in out.splitlines():
        path, _, rest = line.partition(": ")
        symbol, kind = rest.split()[:2]
        defined, needed = objects[os.path.relpath(path, build)]
        (needed if kind in "Uvw" else defined).add(symbol)
    return objects


def dead_sources(tree, objects):
    """Sources that define nothing anybody else needs and nothing a public header declares.

    Asked of the object files, since macros make names that no text search finds."""
    if "src/cli/main.c" not in tree:
        return  # a library on its own has no last user
    public = set(re.findall(r"\w+", " ".join(text for path, text in tree.items()
                                             if path.startswith("include/"))))
    needed_by = {}
    for name, (_, needed) in objects.items():
        for symbol in needed:
            needed_by.setdefault(symbol, set()).add(name)
    for name, (defined, _) in objects.items():
        path = name[name.find(ROOMS) + len(ROOMS):-len(".o")] if ROOMS in name else None
        if path not in tree or not tree[path].strip():
            continue  # a test's object, or one whose source is gone
        if not any(needed_by.get(symbol, set()) - {name} or symbol in public
                   for symbol in defined):
            yield path, 1, "nothing else uses anything this source defines"


GLOSSARY = "docs/glossary.md"
ARCHITECTURE = "ARCHITECTURE.md"
# Spellings that the glossary replaces, where another word is meant by them: (pattern, instead).
BANNED_NAMES = [  # in identifiers, between the words of which they are made
    (r"brain", "bf16"),
    (r"crossings?", "edge value"),
    (r"stretch(es)?", "heap"),
    (r"(tri|checkpoint)_pieces?", "chunk"),
    (r"tri_(column|place|things?|moves|transfers?)|(launch|op)_places?", "see the glossary"),
    (r"(cuda|launch)_pass(es)?", "kind (of a convolution)"),
    (r"(tri|flat|staged|pass|gradient)_parts?", "slice, bucket, source, term or shard"),
]
BANNED_PROSE = [  # in comments and documents
    (r"anew", "again"),
    (r"whoever|lest|wherein|hence", "plain English"),
    (r"came to|come to pass|see(n|s)? to it|is reckoned|reckon(ed|s)?", "plain English"),
    (r"lets? go of", "releases"),
    (r"(is|are) said|said so|(has|have) seen to|sees? to", "plain English"),
    (r"crossings?", "edge value"),
    (r"stretch(es)?", "heap"),
    (r"run director(y|ies)", "run folder"),
]
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
MARKDOWN_LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)[^)]*\)")


def glossary(tree):
    """Each term is defined once, and what it replaces is found nowhere."""
    terms = {}
    if GLOSSARY in tree:
        for number, line in enumerate(tree[GLOSSARY].split("\n"), 1):
            if line.startswith("## Spellings"):
                break
            cells = [cell.strip() for cell in line.split("|")]
            if len(cells) != 4 or cells[1] in ("term", "") or set(cells[1]) == {"-"}:
                continue
            for term in (cells[1],):
                if term in terms:
                    yield GLOSSARY, number, f"'{term}' is defined on line {terms[term]} already"
                terms[term] = number
    names = [(re.compile(rf"(?<![A-Za-z])(?:{p})(?![A-Za-z])"), why) for p, why in BANNED_NAMES]
    prose = [(re.compile(rf"\b(?:{p})\b", re.I), why) for p, why in BANNED_PROSE]
    # One look for all, where nearly no text has any of them.
    any_name, any_prose = (re.compile("|".join(p for p, _ in banned))
                           for banned in (BANNED_NAMES, BANNED_PROSE))
    for path, text in tree.items():
        if path.startswith(FOREIGN) or path in (GLOSSARY, SELF):
            continue
        if is_c(path):
            code = without_comments(text)
            for pattern, why in names if any_name.search(code) else ():
                for match in pattern.finditer(code):
                    yield path, line_of(code, match.start()), f"'{match.group(0)}': {why}"
            spans = [(comment.start(), comment.group(0)) for comment in COMMENT.finditer(text)]
        else:  # scripts have their prose in comments and strings, documents everywhere
            spans = [(0, text)] if is_code(path, text) or path.endswith((".md", ".yaml")) else []
        for start, span in spans:
            for pattern, why in prose if any_prose.search(span) else ():
                for match in pattern.finditer(span):
                    yield path, line_of(text, start + match.start()), f"'{match.group(0)}': {why}"


def openings(tree):
    """A source or header begins with what it is for."""
    for path, text in tree.items():
        if path.endswith((".c", ".h")) and not text.startswith(("//", "/*")):
            yield path, 1, "does not say at its beginning what it is for"


TOUR_STOP = re.compile(r"\d+\. `((?:src|include)/[\w./-]+)`")


def tours(tree):
    """The stops of ARCHITECTURE.md's tours exist, and each names the next one where it opens."""
    last = None
    for number, line in enumerate(tree.get(ARCHITECTURE, "").split("\n"), 1):
        stop = TOUR_STOP.match(line)
        if line.startswith("#"):
            last = None
        if not stop:
            continue
        path = stop.group(1)
        if path not in tree:
            yield ARCHITECTURE, number, f"there is no {path}"
            continue
        beside = last and os.path.dirname(last) == os.path.dirname(path)
        name = os.path.basename(path) if beside else path.removeprefix("src/")
        if last and name not in re.match(r"(?://[^\n]*\n)*", tree[last]).group(0):
            yield last, 1, f"does not name the next stop of the tour, {name}"
        last = path


def decisions(tree):
    """Each page under docs/decisions has a number of its own, and documents name existing ones."""
    numbers = {}
    for path in sorted(tree):
        page = re.match(r"docs/decisions/(\d{4})-[\w-]+\.md$", path)
        if page and numbers.setdefault(page.group(1), path) != path:
            yield path, 1, f"has the number of {numbers[page.group(1)]}"
    for path, text in tree.items():
        for match in re.finditer(r"docs/decisions/(\d{4})", text) if path.endswith(".md") else ():
            if match.group(1) not in numbers:
                yield path, line_of(text, match.start()), f"there is no decision {match.group(1)}"


def references(tree):
    """What documents name exists: `tri_...`, paths under src/, and what relative links lead to."""
    known = set()
    for path, text in tree.items():
        if is_c(path):
            known.update(re.findall(r"\b(?:tri|TRI)_\w+", text))
            known.update("tri_" + name for name in re.findall(r"\bX\((\w+), \(tri_value", text))
    # X-macros make names that no source spells: tri_op_relu, TRI_ORDER_1f1b.
    made = ("tri_op_", "tri_order_", "TRI_ORDER_", "TRI_ACTION_", "TRI_BUCKET_", "TRI_STRATEGY_")
    for path, text in tree.items():
        if not path.endswith(".md"):
            continue
        for match in re.finditer(r"`((?:tri|TRI)_\w+)", text):
            name = match.group(1)
            if name in known or name.startswith(made) or text[match.end():match.end() + 1] == "*":
                continue
            if not any(other.startswith(name) for other in known) or not name.endswith("_"):
                yield path, line_of(text, match.start()), f"there is no {name}"
        for match in re.finditer(r"`(?:src/)?((\w+)/[\w/-]+\.[ch])`", text):
            source = "src/" + match.group(1)
            if match.group(2) in LAYERS and source not in tree and f"new: {source}" not in text:
                yield path, line_of(text, match.start()), f"there is no src/{match.group(1)}"
        for match in MARKDOWN_LINK.finditer(text):
            target = match.group(1)
            if "://" in target or target.startswith("mailto:"):
                continue
            full = os.path.normpath(os.path.join(os.path.dirname(path), target))
            if full not in tree and not any(other.startswith(full + "/") for other in tree):
                yield path, line_of(text, match.start()), f"the link leads nowhere: {target}"


RULES = [layers, circles, backends, lengths, words, dead_files, glossary, openings, tours,
         decisions, references]


def check(tree, objects=None):
    found = [(rule.__name__, *what) for rule in RULES for what in rule(tree)]
    return found + [("dead_sources", *what) for what in dead_sources(tree, objects or {})]


def self_test():
    """One planted violation of each kind is found, and a clean tree passes."""
    clean = {
        "include/trireme/status.h": "// Status.\nint tri_status_of(void);\n",
        "src/base/status.h": "// Fails.\n#include <trireme/status.h>\nint tri_fail(void);\n",
        "src/base/status.c": '// Fails. Read next: cli/main.c.\n#include "base/status.h"\n'
                             'int tri_fail(void) { return 1; }\n',
        "src/plan/good.c": "// Fails.\nint tri_fail(void);\n",
        "docs/glossary.md": "| heap | memory |\n| slice | what a rank has |\n`tri_fail` [a](../"
                            "include/trireme/status.h)\n",
        "README.md": "glossary.md, decisions/\n",
        "docs/decisions/0001-a.md": "Why.\n",
        "ARCHITECTURE.md": "1. `src/base/log.c`\n2. `src/base/status.c`\n3. `src/cli/main.c`\n",
        "src/base/log.h": '// Logs.\n#include "base/status.h"\n',
        "src/base/log.c": '// Logs. Read next: status.c.\n#include "base/log.h"\n'
                          'int tri_log_line(void) { return tri_fail(); }\n',
        "src/device/ref/ref.h": '// Declares.\n#include "base/status.h"\n',
        "src/device/cpu/cpu.c": '// Computes.\n#include "device/ref/ref.h"\nint cpu(void) '
                                '{ return tri_fail(); }\n',
        "src/cli/main.c": '// Runs.\n#include "device/ref/ref.h"\n'
                          'int main(void) { exit(cpu()); }\n',
        "tests/unit/test_a.c": "// Tests.\nint main(void) { return 0; } // mkdtemp(XXXXXX)\n",
    }
    broken = {  # path -> (text, the rule that has to see it)
        "src/base/up.c": ('#include "tensor/tensor.h"\nint tri_fail(void);\n', "layers"),
        "src/plan/room.c": ('#include "engine/engine.h"\nint tri_fail(void);\n', "layers"),
        "src/comm/peer.c": ('#include "nn/nn.h"\nint tri_fail(void);\n', "layers"),
        "src/attic/a.c": ("int tri_fail(void);\n", "layers"),
        "include/trireme/bad.h": ('#include "base/status.h"\n', "layers"),
        "src/base/status.c": ('#include "base/status.h"\n#include "base/log.h"\n', "circles"),
        "src/train/loop.c": ('#include "device/cpu/cpu.h"\nint tri_fail(void);\n', "backends"),
        "src/device/ref/up.c": ('#include "device/cpu/cpu.h"\nint tri_fail(void);\n', "backends"),
        "src/base/long.c": ("int tri_fail(void);\n" * (MAX_LINES + 1), "lengths"),
        "src/base/deep.c": ("int tri_fail(void) {\n" + "    go();\n" * MAX_FUNCTION_LINES + "}\n",
                            "lengths"),
        "src/base/wide.c": ("int tri_fail(void); //" + "x" * MAX_COLUMNS + "\n", "lengths"),
        "src/base/tab.c": ("int tri_fail(\tvoid);\n", "lengths"),
        "src/base/blank.c": ("int tri_fail(void); \n", "lengths"),
        "src/base/end.c": ("int tri_fail(void);", "lengths"),
        "src/base/merge.c": ("int tri_fail(void);\n" + "<" * 7 + " HEAD\n", "lengths"),
        "src/base/later.c": ("int tri_fail(void); // TO" + "DO\n", "words"),
        "src/base/never.c": ('int tri_fail(void) { puts("not implemented"); }\n', "words"),
        "docs/where.md": ("see " + SLASH + "work" + SLASH + "x\n", "words"),
        "docs/number.md": ("as in issue 12\n", "words"),
        "src/base/copy.c": ("int tri_fail(void) { strcpy(a, b); }\n", "words"),
        "src/base/make.c": ("int tri_fail(void) { open(a, O_RDWR | O_CREAT, 0666); }\n", "words"),
        "src/base/wait.c": ('int tri_fail(void) { printf("%.3g ms", t); }\n', "words"),
        "tests/unit/test_child.c": ("int main(void) { usleep(1); fork(); }\n", "words"),
        "src/base/leave.c": ("int tri_fail(void) { exit(1); }\n", "words"),
        "src/nn/gpu.c": ("int tri_fail(void);\n#ifdef USE_CUDA\n#endif\n", "words"),
        "src/base/alone.h": ("int x;\n", "dead_files"),
        "recipes/lost.yaml": ("name: lost\n", "dead_files"),
        "docs/lost.md": ("words\n", "dead_files"),
        "docs/wide.md": ("x" * (MAX_PROSE_COLUMNS + 1) + "\n", "lengths"),
        "docs/glossary.md": ("| heap | memory |\n| heap | more memory |\n", "glossary"),
        "src/plan/name.c": ("// Fails.\nint tri_fail(void);\nint tri_column_make(void);\n",
                            "glossary"),
        "src/plan/prose.c": ("// Makes it ane" + "w.\nint tri_fail(void);\n", "glossary"),
        "src/plan/bare.c": ("int tri_fail(void);\n", "openings"),
        "docs/decisions/0001-b.md": ("Why.\n", "decisions"),
        "docs/number.md": ("`docs/decisions/0002`\n", "decisions"),
        "README.md": ("glossary.md, `tri_missing`\n", "references"),
        "docs/link.md": ("[a](nowhere.md)\n", "references"),
        "docs/path.md": ("`src/base/gone.c`\n", "references"),
        "docs/prose.md": ("Made ane" + "w.\n", "glossary"),
        "ARCHITECTURE.md": ("1. `src/base/gone.c`\n", "tours"),
        "src/base/log.c": ("// Logs.\nint tri_log_line(void) { return tri_fail(); }\n", "tours"),
    }
    failures = [f"a clean tree is refused: {found}" for found in check(clean)]
    for path, (text, rule) in broken.items():
        if not any(f[0] == rule and f[1] == path for f in check({**clean, path: text})):
            failures.append(f"{rule} does not see the violation planted in {path}")
    objects = {ROOMS + "src/base/status.c.o": ({"tri_fail"}, set()),
               ROOMS + "src/device/cpu/cpu.c.o": ({"cpu"}, {"tri_fail"})}
    dead = [found[1] for found in check(clean, objects) if found[0] == "dead_sources"]
    if dead != ["src/device/cpu/cpu.c"]:
        failures.append(f"dead_sources finds {dead} instead of the one planted")
    return failures


def main():
    failures = self_test()
    for line in failures:
        print(f"self-test: {line}")
    tree = load_tree()
    if not tree:
        print("no files found: run this in the source folder")
        return 1
    objects = symbols(sys.argv[1]) if len(sys.argv) > 1 else {}
    found = check(tree, objects)
    for rule, path, line, what in found:
        print(f"{path}:{line}: {rule}: {what}")
    print(f"{len(tree)} files, {len(objects)} objects, {len(RULES) + 1} rules, "
          f"{len(found)} violations")
    return 1 if failures or found else 0


if __name__ == "__main__":
    sys.exit(main())
