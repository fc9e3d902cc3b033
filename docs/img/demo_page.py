"""The picture of README's first lines: two pages of `fedfairx demo` in Chromium, one below the other.

`python docs/img/demo_page.py` runs the demonstration, waits until it has placed some orders, and writes
demo.png. It needs Chromium, Playwright and Pillow.
"""

from __future__ import annotations

import io
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

FILE = Path(__file__).with_name("demo.png")
PAGES = {"": 560, "federation": 540}  # and the height of what is shown of each
WIDTH = 1040
SECONDS = 20  # of orders before the pictures
COLOURS = 64  # which make the file a third as large


def main() -> None:
    command = [sys.executable, "-m", "fedfairx", "demo", "--no-browser", "--port", "0"]
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen([*command, "--rate", "40"], cwd=folder, stderr=subprocess.PIPE, text=True) as demo,
    ):
        assert demo.stderr is not None
        url = ""
        for line in demo.stderr:  # until all of the first orders are placed
            url = next(iter(re.findall(r"org1  (http://\S+/)  ", line)), url)
            count = re.match(r"(\d+) orders", line)
            if count is not None and int(count[1]) > 3 * (1_500 + 40 * SECONDS):
                break
        pictures = [Image.open(io.BytesIO(each)) for each in taken(url)]
        demo.send_signal(signal.SIGINT)
        demo.stderr.read()
    whole = Image.new("RGB", (WIDTH, sum(PAGES.values())), "white")
    top = 0
    for picture in pictures:
        whole.paste(picture, (0, top))
        top += picture.height
    whole.quantize(COLOURS).save(FILE, optimize=True)
    print(f"{FILE.name}: {whole.size}, {FILE.stat().st_size / 1000:.0f} kB")


def taken(url: str) -> list[bytes]:
    """A picture of each page."""
    with sync_playwright() as playwright:
        program = shutil.which("chromium") or shutil.which("chromium-browser")
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        tab = browser.new_page(color_scheme="light")
        pictures = []
        for page, height in PAGES.items():
            tab.set_viewport_size({"width": WIDTH, "height": height})
            tab.goto(url + page)
            while "being computed" in tab.inner_text("main"):
                tab.wait_for_timeout(500)
                tab.reload()
            tab.wait_for_load_state("networkidle")
            pictures.append(tab.screenshot())
        browser.close()
    return pictures


if __name__ == "__main__":
    main()
