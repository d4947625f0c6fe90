"""What all tests share: Hypothesis profiles, the built book, and a browser that can reach no other host."""

import os
import shutil
import subprocess
import sys
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml
from filelock import FileLock
from hypothesis import settings

ROOT = Path(__file__).resolve().parent.parent
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
GET_A_BROWSER = "on Debian and Ubuntu `apt install chromium`; or name one: CHROMIUM=/path/to/chrome make test"

# `make test`: the same examples in every run. `make long` (SPECGAIN_LONG=1): many more, new ones each time.
settings.register_profile("quick", derandomize=True, deadline=None, max_examples=60, database=None)
settings.register_profile("long", deadline=None, max_examples=3000)
settings.load_profile("long" if os.environ.get("SPECGAIN_LONG") else "quick")


def chromium():
    """Return the path of a Chromium or Chrome on this machine, or None."""
    named = os.environ.get("CHROMIUM")
    return named or next(filter(None, map(shutil.which, BROWSERS)), None)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Where there is no browser, let browser tests fail in CI and be skipped by hand."""
    if item.get_closest_marker("browser") and not chromium():
        if os.environ.get("CI"):
            pytest.fail(f"CI must run the browser tests and found no browser: {GET_A_BROWSER}", pytrace=False)
        pytest.skip("no Chromium")


def pytest_unconfigure(config):
    """End a run without a browser with a line that counts what was not tested."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    skipped = [r for r in reporter.stats.get("skipped", []) if "no Chromium" in str(r.longrepr)] if reporter else []
    if skipped:
        reporter.write_line(f"{len(skipped)} browser tests were NOT RUN: no Chromium was found. To run them: {GET_A_BROWSER}")


# --- the browser -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def browser_type_launch_args():
    """Start the system's Chromium, quiet on the network. (pytest-playwright reads this fixture.)"""
    quiet = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]
    quiet += ["--disable-background-networking", "--disable-component-update"]
    return {"executable_path": chromium(), "headless": True, "args": quiet}


# --- the book ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def book():
    """Build the book strictly, once per session (quick when nothing changed); return the folder of its pages."""
    with FileLock(ROOT / ".venv" / "book.lock"):
        command = [sys.executable, ROOT / "tools" / "book.py"]
        run = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if run.returncode:
        pytest.fail(f"the strict build failed:\n{run.stdout[-3000:]}\n{run.stderr[-6000:]}", pytrace=False)
    return ROOT / "_build" / "html"


def toc_pages():
    """Return the names of the published pages in order, e.g. "book/index"."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    parts = [toc, *toc.get("parts", [])]
    chapters = [chapter for part in parts for chapter in part.get("chapters", [])]
    sections = [section for chapter in chapters for section in [chapter, *chapter.get("sections", [])]]
    return [toc["root"], *(entry["file"] for entry in sections)]


@pytest.fixture(scope="session")
def page_names():
    """Return the names of all published pages."""
    return toc_pages()


def pytest_generate_tests(metafunc):
    """Run a test that asks for `page_name` once for every published page."""
    if "page_name" in metafunc.fixturenames:
        metafunc.parametrize("page_name", toc_pages())


@pytest.fixture(scope="session")
def site(book):
    """Serve the built book on this machine; return its address, without a slash at the end."""

    class Quiet(SimpleHTTPRequestHandler):
        def __init__(self, *args):
            super().__init__(*args, directory=book)

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
