"""The prompts of chapter 4: six kinds of work, eight prompts each, and what each kind is. Written for this course.

`prompts(kind)` gives chat messages as text; "random" has none, its prompts are token ids drawn by `random_ids`.
"""

import json

import numpy as np

KINDS = {
    "copy": "code to be repeated as it stands",
    "edit": "code to be changed in one place",
    "extract": "a message whose facts are to be written as JSON",
    "agent": "the log of an agent that works in steps with a fixed form",
    "chat": "an open question",
    "random": "token ids drawn at random",
}
PROMPTS, RANDOM_TOKENS, SEED = 8, 160, 2026

CODE = [
    """def load_orders(path):
    orders = []
    with open(path) as file:
        for line in file:
            name, count, price = line.strip().split(",")
            orders.append({"name": name, "count": int(count), "price": float(price)})
    return orders


def total_price(orders):
    return sum(order["count"] * order["price"] for order in orders)""",
    """class Stack:
    def __init__(self):
        self.items = []

    def push(self, item):
        self.items.append(item)

    def pop(self):
        if not self.items:
            raise IndexError("the stack is empty")
        return self.items.pop()

    def peek(self):
        return self.items[-1]""",
    """def moving_average(values, width):
    averages = []
    for start in range(len(values) - width + 1):
        window = values[start : start + width]
        averages.append(sum(window) / width)
    return averages


def largest_step(values):
    steps = [abs(b - a) for a, b in zip(values, values[1:])]
    return max(steps)""",
    """import time


def retry(action, attempts=3, pause=0.5):
    for attempt in range(1, attempts + 1):
        try:
            return action()
        except OSError as error:
            print(f"attempt {attempt} of {attempts} failed: {error}")
            time.sleep(pause * attempt)
    raise RuntimeError("all attempts failed")""",
    """class Account:
    def __init__(self, owner, balance=0):
        self.owner = owner
        self.balance = balance

    def deposit(self, amount):
        self.balance = self.balance + amount

    def withdraw(self, amount):
        if amount > self.balance:
            raise ValueError("not enough money")
        self.balance = self.balance - amount""",
    """def word_counts(text):
    counts = {}
    for word in text.lower().split():
        word = word.strip(".,;:!?")
        counts[word] = counts.get(word, 0) + 1
    return counts


def most_common(counts, number):
    pairs = sorted(counts.items(), key=lambda pair: -pair[1])
    return pairs[:number]""",
    """def grid_neighbours(row, column, rows, columns):
    neighbours = []
    for step_row, step_column in ((0, 1), (1, 0), (0, -1), (-1, 0)):
        next_row = row + step_row
        next_column = column + step_column
        if 0 <= next_row < rows and 0 <= next_column < columns:
            neighbours.append((next_row, next_column))
    return neighbours""",
    """def parse_version(text):
    parts = text.split(".")
    if len(parts) != 3:
        raise ValueError("a version has three parts")
    major, minor, patch = (int(part) for part in parts)
    return major, minor, patch


def is_newer(first, second):
    return parse_version(first) > parse_version(second)""",
]

EDITS = [
    "rename the variable orders to items",
    "add a method size that returns the number of items",
    "rename the variable values to numbers",
    "make the default number of attempts 5",
    "add a method close that sets the balance to zero",
    "rename the variable counts to table",
    "include the four diagonal neighbours",
    "accept versions with two parts too",
]

PEOPLE = [
    ("Marta Lindqvist", "Uppsala", "a blue winter jacket", "two", "14 March", "marta.lindqvist@example.org"),
    ("Tomas Okafor", "Leeds", "a set of garden chairs", "four", "2 June", "tomas.okafor@example.org"),
    ("Hanh Nguyen", "Da Nang", "a ceramic tea pot", "one", "21 September", "hanh.nguyen@example.org"),
    ("Elif Demir", "Izmir", "a pair of running shoes", "three", "9 January", "elif.demir@example.org"),
    ("Pedro Almeida", "Porto", "a travel guide to Iceland", "two", "30 October", "pedro.almeida@example.org"),
    ("Aiko Tanaka", "Sendai", "a mechanical keyboard", "one", "17 May", "aiko.tanaka@example.org"),
    ("Samuel Mensah", "Kumasi", "a solar lamp", "six", "5 August", "samuel.mensah@example.org"),
    ("Ines Moreau", "Lyon", "a box of watercolours", "two", "26 November", "ines.moreau@example.org"),
]

LETTERS = [
    "Hello, this is {name} from {city}. On {date} I ordered {count} pieces of {thing} in your shop. Nothing has come so "
    "far. Please write to {mail} and tell me when I can expect the parcel.",
    "Dear team, my name is {name} and I live in {city}. I would like to send back {thing}. I bought {count} of them on "
    "{date}, and the colour is wrong. You can reach me at {mail}.",
]

TASKS = [
    ("find out why the nightly report is empty", "report", "the query asks for yesterday in the wrong time zone"),
    ("find the largest file in the project", "files", "data/archive.bin has 48 MB"),
    ("check whether all tests pass", "tests", "one test of the parser fails"),
    ("update the version number to 2.4.0", "version", "the number stands in two files"),
    ("find out who changed the price table last", "prices", "the last change is from Monday"),
    ("remove the unused settings", "settings", "three settings are never read"),
    ("explain the slow start of the server", "server", "it reads all images when it starts"),
    ("add the missing licence to the package", "package", "the file LICENSE is not in the list"),
]

QUESTIONS = [
    "What makes a good teacher? Explain your view with an example.",
    "Describe a quiet morning in a small harbour town.",
    "Should cities ban cars from their centres? Give reasons for both sides.",
    "Tell me a short story about a clock that runs backwards.",
    "How would you explain the tides to a child?",
    "What should I cook for four friends, one of whom eats no meat?",
    "Why do people like sad songs?",
    "Write a friendly letter to a neighbour whose dog barks at night.",
]


def prompts(kind):
    """Return the messages of a kind, a list of str (of PROMPTS), what the user says."""
    if kind == "copy":
        return [f"Repeat this Python code exactly, without any change:\n\n```python\n{code}\n```" for code in CODE]
    if kind == "edit":
        pairs = zip(CODE, EDITS, strict=True)
        return [
            f"Here is some Python code:\n\n```python\n{code}\n```\n\nWrite all of it again, but {edit}."
            for code, edit in pairs
        ]
    if kind == "extract":
        return [_letter(i, *person) for i, person in enumerate(PEOPLE)]
    if kind == "agent":
        return [_agent(*task) for task in TASKS]
    if kind == "chat":
        return list(QUESTIONS)
    raise ValueError(f"kind {kind!r} has no texts; choose from {', '.join(k for k in KINDS if k != 'random')}")


def _letter(i, name, city, thing, count, date, mail):
    text = LETTERS[i % 2].format(name=name, city=city, thing=thing, count=count, date=date, mail=mail)
    return (
        f'Write the facts of this message as JSON with the keys "name", "city", "product", "count", "date", "email" and '
        f'"summary".\n\nMessage: {text}'
    )


def _agent(task, topic, finding):
    steps = [
        (
            "list_files",
            {"folder": f"src/{topic}"},
            f"src/{topic}/main.py, src/{topic}/config.json, src/{topic}/README.md",
        ),
        ("read_file", {"path": f"src/{topic}/main.py"}, f"42 lines, first line: import {topic}_tools"),
        ("read_file", {"path": f"src/{topic}/config.json"}, f"note: {finding}"),
    ]
    log = "\n".join(
        f"Step {n}\nThought: I need the next piece of information about the {topic}.\n"
        f"Action: {json.dumps({'tool': tool, 'arguments': arguments})}\nResult: {result}"
        for n, (tool, arguments, result) in enumerate(steps, 1)
    )
    return (
        f"You are an agent with the tools list_files, read_file, write_file and run_tests. The task: {task}.\n\n{log}\n\n"
        f"Go on with steps 4, 5 and 6 in the same form, the results included."
    )


def random_ids(vocab, special):
    """Return PROMPTS lists of RANDOM_TOKENS token ids, drawn uniformly from all but the `special` ones."""
    allowed, rng = np.setdiff1d(np.arange(vocab), list(special)), np.random.default_rng(SEED)
    return rng.choice(allowed, (PROMPTS, RANDOM_TOKENS)).tolist()
