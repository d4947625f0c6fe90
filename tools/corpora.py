"""The five corpora of the tiny pair: three that this file writes itself, two natural ones.

`json`, `func` and `viet` are generated with Zipf-skewed choices, so that a greedy continuation has a clear winner and a
small draft can agree with it. `stdlib` is the source of the running interpreter (PSF licence). `prose` is six novels by
Jane Austen (public domain) as packed in the Debian package r-cran-janeaustenr (MIT). A corpus is a list of documents.
"""

import io
import json
import random
import subprocess
import sysconfig
import tarfile
import zlib
from pathlib import Path

DOMAINS = ("json", "func", "viet", "stdlib", "prose")
HOW_TO_GET_AUSTEN = (
    "the prose corpus needs the Debian package r-cran-janeaustenr: run `apt-get download r-cran-janeaustenr` "
    "(no R needed) and pass the .deb file with --austen"
)


def documents(domain, characters, austen=None, seed=2026):
    """A list of strings, about `characters` characters in all, of one of DOMAINS; the same for the same arguments."""
    if domain == "prose":
        return austen_paragraphs(austen, characters)
    if domain == "stdlib":
        return stdlib_files(characters, seed)
    rng, texts, size = random.Random(f"{domain}-{seed}"), [], 0
    write = {"json": json_record, "func": python_function, "viet": vietnamese_story}[domain]
    while size < characters:
        texts.append(write(rng))
        size += len(texts[-1])
    return texts


def zipf(rng, items, exponent=1.3):
    """One of `items`, the r-th (from 1) drawn with weight r^-exponent."""
    return rng.choices(items, [rank**-exponent for rank in range(1, len(items) + 1)])[0]


# --- json: six record types, some values a function of others -------------------------------------------------------

FIRST = "Anna Ben Clara David Emma Felix Grace Hugo Iris Jonas Karin Leo Maria Nora Oscar Paula".split()
LAST = "Miller Novak Garcia Tran Schmidt Rossi Larsen Kowalski Dubois Silva Jansen Moreau".split()
CITY = {
    "Berlin": "Germany", "Hanoi": "Vietnam", "Lisbon": "Portugal", "Oslo": "Norway", "Madrid": "Spain",
    "Vienna": "Austria", "Prague": "Czechia", "Lyon": "France", "Turin": "Italy", "Warsaw": "Poland",
}  # fmt: skip
PRODUCT = {
    "notebook": 3.5, "desk lamp": 24.9, "keyboard": 59.0, "coffee mug": 8.25, "backpack": 45.0, "headphones": 89.0,
    "water bottle": 12.5, "office chair": 149.0, "monitor": 219.0, "pencil case": 6.75,
}  # fmt: skip
BOOK = {
    "The Silent Harbour": "Ines Falk", "A Map of Rivers": "Tomas Reed", "Winter Gardens": "Lena Brandt",
    "The Glass Station": "Omar Haddad", "Nine Small Rooms": "Julia Weiss", "Salt and Smoke": "Peter Lind",
}  # fmt: skip
SENSOR = {"temperature": "celsius", "humidity": "percent", "pressure": "hectopascal", "noise": "decibel"}
STATUS = {"active": True, "paused": False, "closed": False}


def person(rng):
    """A dict with a name and the e-mail address that follows from it."""
    first, last = zipf(rng, FIRST), zipf(rng, LAST)
    return {"name": f"{first} {last}", "email": f"{first.lower()}.{last.lower()}@example.org"}


def json_record(rng):
    """One pretty-printed JSON object of a randomly chosen type."""
    city = zipf(rng, list(CITY))
    kind = zipf(rng, ["user", "order", "booking", "reading", "review", "shipment"], 0.6)
    record = {"type": kind, "id": rng.choice([100, 200, 300, 400]) + zipf(rng, range(20))}
    if kind == "user":
        status = zipf(rng, list(STATUS))
        record |= person(rng) | {"city": city, "country": CITY[city], "status": status, "can_login": STATUS[status]}
    elif kind == "order":
        items = [zipf(rng, list(PRODUCT)) for _ in range(zipf(rng, [1, 2, 3]))]
        lines = [{"product": p, "quantity": zipf(rng, [1, 2, 3, 5, 10]), "price": PRODUCT[p]} for p in items]
        record |= {"customer": person(rng), "items": lines, "currency": "EUR", "paid": zipf(rng, [True, False])}
    elif kind == "booking":
        nights = zipf(rng, [2, 1, 3, 7, 14])
        record |= {"guest": person(rng), "hotel": f"Hotel {city}", "country": CITY[city], "nights": nights,
                   "breakfast": nights > 1}  # fmt: skip
    elif kind == "reading":
        quantity = zipf(rng, list(SENSOR))
        record |= {"station": f"{city.lower()}-{zipf(rng, [1, 2, 3])}", "quantity": quantity,
                   "unit": SENSOR[quantity], "values": [zipf(rng, range(10, 30)) for _ in range(4)], "ok": True}  # fmt: skip
    elif kind == "review":
        title, stars = zipf(rng, list(BOOK)), zipf(rng, [5, 4, 3, 1, 2])
        record |= {"title": title, "author": BOOK[title], "reader": person(rng)["name"], "stars": stars,
                   "recommended": stars >= 4}  # fmt: skip
    else:
        carrier = zipf(rng, ["road", "rail", "air", "sea"])
        record |= {"from": city, "to": zipf(rng, list(CITY)), "carrier": carrier,
                   "days": {"road": 3, "rail": 4, "air": 1, "sea": 21}[carrier], "insured": carrier in ("air", "sea")}  # fmt: skip
    return json.dumps(record, indent=2) + "\n"


# --- func: small Python functions whose first line decides the rest -------------------------------------------------

NOUNS = ("price", "score", "word", "name", "item", "value", "weight", "user", "file", "line", "point", "grade", "city")
LIMITS = (0, 10, 100, 1, 5, 50, 1000)
OPERATORS = (("above", ">"), ("below", "<"), ("equal_to", "=="), ("at_least", ">="), ("at_most", "<="))
SHAPES = {
    "Rectangle": (("width", "height"), "self.width * self.height", "2 * (self.width + self.height)"),
    "Square": (("side",), "self.side ** 2", "4 * self.side"),
    "Circle": (("radius",), "3.14159 * self.radius ** 2", "2 * 3.14159 * self.radius"),
    "Triangle": (("base", "height"), "self.base * self.height / 2", "self.base + 2 * self.height"),
}
UNITS = (("meters", "feet", 3.28084), ("kilograms", "pounds", 2.20462), ("litres", "gallons", 0.264172),
         ("kilometres", "miles", 0.621371), ("hours", "minutes", 60), ("days", "hours", 24))  # fmt: skip
FUNCTIONS = {
    "total": 'def total_{n}(values):\n    """Return the sum of all {n} values."""\n    total = 0\n'
             "    for value in values:\n        total += value\n    return total\n",
    "count": 'def count_{n}s_{w}(values, limit={k}):\n    """Count the {n}s {v} the limit."""\n    count = 0\n'
             "    for value in values:\n        if value {o} limit:\n            count += 1\n    return count\n",
    "filter": 'def keep_{n}s_{w}(values, limit={k}):\n    """Return the {n}s {v} the limit."""\n'
              "    return [value for value in values if value {o} limit]\n",
    "mean": 'def mean_{n}(values):\n    """Return the mean {n}, or 0 if there is none."""\n    if not values:\n'
            "        return 0\n    return sum(values) / len(values)\n",
    "largest": 'def largest_{n}(values):\n    """Return the largest {n}."""\n    largest = values[0]\n'
               "    for value in values[1:]:\n        if value > largest:\n            largest = value\n    return largest\n",
    "smallest": 'def smallest_{n}(values):\n    """Return the smallest {n}."""\n    smallest = values[0]\n'
                "    for value in values[1:]:\n        if value < smallest:\n            smallest = value\n    return smallest\n",
    "index": 'def find_{n}({n}s, wanted):\n    """Return the index of the wanted {n}, or -1."""\n'
             "    for index, {n} in enumerate({n}s):\n        if {n} == wanted:\n            return index\n    return -1\n",
    "group": 'def group_{n}s({n}s, key):\n    """Group the {n}s by a key."""\n    groups = {{}}\n'
             "    for {n} in {n}s:\n        groups.setdefault(key({n}), []).append({n})\n    return groups\n",
    "read": 'def read_{n}s(path):\n    """Read one {n} per line from a file."""\n'
            '    with open(path, encoding="utf-8") as file:\n        return [line.strip() for line in file if line.strip()]\n',
    "write": 'def write_{n}s(path, {n}s):\n    """Write one {n} per line to a file."""\n'
             '    with open(path, "w", encoding="utf-8") as file:\n        for {n} in {n}s:\n            file.write(str({n}) + "\\n")\n',
    "check": 'def check_{n}({n}):\n    """Raise ValueError if the {n} is {v} {k}."""\n    if {n} {o} {k}:\n'
             '        raise ValueError("{n} must not be {v} {k}")\n    return {n}\n',
    "unique": 'def unique_{n}s({n}s):\n    """Return the {n}s without repeats, in order."""\n    seen = set()\n    result = []\n'
              "    for {n} in {n}s:\n        if {n} not in seen:\n            seen.add({n})\n            result.append({n})\n    return result\n",
    "class": 'class {c}:\n    """A {l} of fixed size."""\n\n    def __init__(self, {args}):\n{sets}\n'
             "    def area(self):\n        return {area}\n\n    def perimeter(self):\n        return {edge}\n",
    "convert": 'def {a}_to_{b}({a}):\n    """Convert {a} to {b}."""\n    return {a} * {r}\n\n\n'
               'def {b}_to_{a}({b}):\n    """Convert {b} to {a}."""\n    return {b} / {r}\n',
}  # fmt: skip


def python_function(rng):
    """One Python function or class with a docstring, drawn from FUNCTIONS."""
    word, operator = zipf(rng, OPERATORS)
    shape = zipf(rng, list(SHAPES))
    fields, area, edge = SHAPES[shape]
    a, b, ratio = zipf(rng, UNITS, 0.8)
    text = FUNCTIONS[zipf(rng, list(FUNCTIONS), 0.5)].format(
        n=zipf(rng, NOUNS, 0.9), k=zipf(rng, LIMITS), w=word, v=word.replace("_", " "), o=operator, c=shape,
        l=shape.lower(), args=", ".join(fields), sets="".join(f"        self.{f} = {f}\n" for f in fields),
        area=area, edge=edge, a=a, b=b, r=ratio)  # fmt: skip
    return text + "\n"


# --- viet: short stories about one child ------------------------------------------------------------------------------

CHILD = "Lan Minh An Hoa Nam Linh Bình Mai Khoa Thảo Dũng Ngọc".split()
HOME = {
    "một làng nhỏ": "dòng sông xanh", "Hà Nội": "hồ Gươm", "thành phố Huế": "sông Hương", "Hội An": "chùa Cầu",
    "Đà Nẵng": "bãi biển", "Cần Thơ": "bến Ninh Kiều", "Đà Lạt": "đồi thông",
}  # fmt: skip
PET = {
    "con mèo": ("Mun", "nằm phơi nắng trước cửa"), "con chó": ("Vàng", "chạy quanh sân"),
    "con thỏ": ("Bông", "ăn cà rốt"), "con chim sẻ": ("Nâu", "hót vào buổi sáng"), "con cá": ("Đỏ", "bơi quanh bể"),
}  # fmt: skip
SUBJECT = {"toán": "cô Hương", "tiếng Việt": "thầy Sơn", "âm nhạc": "cô Yến", "vẽ": "thầy Tùng", "tiếng Anh": "cô Hạnh"}
GAME = ("đá bóng", "nhảy dây", "đọc truyện", "chơi ô ăn quan", "chơi trốn tìm")
MORNING = ("tưới cây trong vườn", "giúp mẹ quét nhà", "cùng bố đi chợ", "ôn bài cũ", "tập thể dục với ông")
FOOD = ("cơm với cá kho", "phở bò", "bánh mì", "bún chả", "canh chua", "xôi đậu xanh")
WEATHER = {"nắng đẹp": "ra sân chơi", "mưa to": "ở nhà đọc sách", "mát mẻ": "đi thả diều", "lạnh": "mặc thêm áo ấm"}
TALE = {"Tấm Cám": "bà", "Thánh Gióng": "ông", "Cây khế": "mẹ", "Sơn Tinh, Thủy Tinh": "bố"}
SAYING = ("Hôm nay con rất vui.", "Con yêu cả nhà.", "Mai con sẽ dậy sớm.", "Con cảm ơn mẹ.")


def vietnamese_story(rng):
    """One story of about ten short sentences in Vietnamese (NFC), about one child."""
    x, home, pet = zipf(rng, CHILD), zipf(rng, list(HOME)), zipf(rng, list(PET))
    subject, weather, tale = zipf(rng, list(SUBJECT)), zipf(rng, list(WEATHER)), zipf(rng, list(TALE))
    friend = zipf(rng, [name for name in CHILD if name != x])
    pet_name, habit = PET[pet]
    sentences = [
        f"{x} sống ở {home}, gần {HOME[home]}.",
        f"Mỗi sáng, {x} dậy sớm và {zipf(rng, MORNING)}.",
        f"{x} có một {pet} tên là {pet_name}.",
        f"{pet_name} rất thích {habit}.",
        f"Ở trường, {x} học môn {subject} với {SUBJECT[subject]}.",
        f"Giờ ra chơi, {x} và {friend} cùng nhau {zipf(rng, GAME)}.",
        f"Buổi trưa, cả nhà ăn {zipf(rng, FOOD)}.",
        f"Buổi chiều trời {weather}, nên {x} {WEATHER[weather]}.",
        f"Buổi tối, {TALE[tale]} kể cho {x} nghe truyện {tale}.",
        f"Trước khi đi ngủ, {x} nói: “{zipf(rng, SAYING)}”",
    ]
    middle = rng.sample(sentences[1:8], zipf(rng, [7, 6, 5], 0.5))
    return " ".join([sentences[0], *sorted(middle, key=sentences.index), *sentences[8:]]) + "\n"


# --- natural text ---------------------------------------------------------------------------------------------------


def stdlib_files(characters, seed):
    """Source files of the running interpreter's standard library, tests left out, in a seeded order."""
    root = Path(sysconfig.get_paths()["stdlib"])
    skip = {"test", "tests", "idlelib", "site-packages", "dist-packages", "lib2to3", "ensurepip", "__pycache__"}
    paths = sorted(p for p in root.rglob("*.py") if not skip & set(p.relative_to(root).parts))
    random.Random(seed).shuffle(paths)
    texts, size = [], 0
    for path in paths:
        text = path.read_text(encoding="utf-8", errors="ignore")
        if size >= characters:
            break
        if not text.isascii() or "encoding" in str(path):  # codec tables are data, not code
            continue
        texts.append(text)
        size += len(text)
    return texts


def austen_paragraphs(deb, characters):
    """Six novels as chapters-long documents, one paragraph per line; FileNotFoundError says how to get the package."""
    if deb is None or not Path(deb).is_file():
        raise FileNotFoundError(HOW_TO_GET_AUSTEN)
    archive = subprocess.run(["dpkg-deb", "--fsys-tarfile", str(deb)], check=True, capture_output=True).stdout
    member = "./usr/lib/R/site-library/janeaustenr/data/Rdata.rdb"
    data = tarfile.open(fileobj=io.BytesIO(archive)).extractfile(member).read()
    novels, size = [], 0
    while data and size < characters:
        inflate = zlib.decompressobj()  # an .rdb file: 4 bytes of length, then a zlib stream, again and again
        novels.append(unwrap(r_strings(inflate.decompress(data[4:]))))
        data, size = inflate.unused_data, size + len(novels[-1])
    return novels


def r_strings(raw):
    """The strings of one serialized R character vector (XDR, version 3)."""
    position = 18 + int.from_bytes(raw[14:18], "big")  # after the header and the name of the encoding
    count = int.from_bytes(raw[position + 4 : position + 8], "big")
    position, lines = position + 8, []
    for _ in range(count):
        size = int.from_bytes(raw[position + 4 : position + 8], "big")
        lines.append(raw[position + 8 : position + 8 + size].decode("utf-8"))
        position += 8 + size
    return lines


def unwrap(lines):
    """One text with a paragraph per line, from lines wrapped at a fixed width with blank lines between paragraphs."""
    paragraphs = "\n".join(line.strip() for line in lines).split("\n\n")
    return "\n".join(p.replace("\n", " ").strip() for p in paragraphs if p.strip()) + "\n"
