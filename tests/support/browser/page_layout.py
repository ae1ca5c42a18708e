"""The layout of a page in a browser: `LAYOUT_FAULTS`, a script that returns the faults of the open page.

The script reports: a page wider than the window; a text that is cut off, overlaps another text, is smaller
than 12 px, or exceeds its box in the picture of the topology; a table cell in which a short word (12
characters or fewer) is broken into lines; a text whose contrast to its background is below 4.5 (3 for large
texts); a link or an element with a tabindex that cannot receive the focus; a heading that skips a level.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from cdigen.page.page import POLICY

LAYOUT_FAULTS = r"""
(() => {
  const faults = [];
  const root = document.documentElement;
  if (root.scrollWidth > root.clientWidth) {
    const far = [...document.querySelectorAll('body *')].filter(e => !e.closest('.wide, thead') &&
      e.getBoundingClientRect().right > root.clientWidth + 1).slice(0, 3);
    const shown = far.map(e => e.outerHTML.slice(0, 80));
    faults.push(`overflow: ${root.scrollWidth} > ${root.clientWidth}: ${shown}`);
  }
  const parse = c => (c.match(/[\d.]+/g) || []).map(Number);
  const linear = v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const luminance = colour => colour.slice(0, 3).map(v => linear(v / 255))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = e => {
    for (; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor);
      if (c.length && (c.length < 4 || c[3] > 0)) return c;
    }
    return [255, 255, 255];
  };
  const contrast = (a, b) => {
    const [x, y] = [luminance(a), luminance(b)].sort((p, q) => q - p);
    return (x + 0.05) / (y + 0.05);
  };
  const boxes = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; node = walker.nextNode();) {
    const e = node.parentElement, text = node.data.trim();
    if (!text || e.closest('svg, style, thead')) continue;
    const style = getComputedStyle(e), size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    const found = contrast(parse(style.color), behind(e));
    if (found < (large ? 3 : 4.5)) faults.push(`contrast ${found.toFixed(2)}: ${text.slice(0, 40)}`);
    if (size < 12) faults.push(`small: ${size}px ${text.slice(0, 40)}`);
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const box of range.getClientRects()) {
      boxes.push([box, e, text]);
      if (box.right > root.clientWidth + 1 && !e.closest('.wide')) faults.push(`cut: ${text.slice(0, 40)}`);
    }
  }
  boxes.sort((a, b) => a[0].top - b[0].top);
  for (let i = 0; i < boxes.length; i++) {
    const [one, e] = boxes[i];
    for (let j = i + 1; j < boxes.length && boxes[j][0].top < one.bottom - 3; j++) {
      const [other, f] = boxes[j];
      if (e !== f && Math.min(one.right, other.right) - Math.max(one.left, other.left) > 2)
        faults.push(`overlap: ${boxes[i][2].slice(0, 30)} / ${boxes[j][2].slice(0, 30)}`);
    }
  }
  for (const svg of document.querySelectorAll('.wide svg')) {
    const page = parse(getComputedStyle(svg.querySelector('.page')).fill);
    const areas = [...svg.querySelectorAll('rect')].map(e => e.getBoundingClientRect())
      .sort((a, b) => a.width * a.height - b.width * b.height);
    for (const text of svg.querySelectorAll('text')) {
      const box = text.getBoundingClientRect();
      const x = (box.left + box.right) / 2, y = (box.top + box.bottom) / 2;
      const start = text.getAttribute('text-anchor') === 'middle' ? x : box.left + 1;
      const area = areas.find(a => a.left <= start && start <= a.right && a.top <= y && y <= a.bottom);
      if (!area || box.left < area.left - 1 || box.right > area.right + 1)
        faults.push(`past its box in the picture: ${text.textContent.slice(0, 60)}`);
      if (text.classList.contains('page')) continue;
      const found = contrast(parse(getComputedStyle(text).fill), page);
      if (found < 4.5) faults.push(`contrast in the picture ${found.toFixed(2)}: ${text.textContent}`);
    }
  }
  for (const cell of document.querySelectorAll('table tbody th, table tbody td:not(:last-child)')) {
    const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
    for (let node; node = texts.nextNode();) {
      if (node.data.length > 12 || /\W/.test(node.data)) continue;
      const range = document.createRange();
      range.selectNodeContents(node);
      if (new Set([...range.getClientRects()].map(r => r.top)).size > 1) faults.push(`torn: ${node.data}`);
    }
  }
  let level = 0;
  for (const heading of document.querySelectorAll('h1, h2, h3')) {
    if (+heading.tagName[1] > level + 1) faults.push(`heading: ${heading.textContent}`);
    level = +heading.tagName[1];
  }
  for (const e of document.querySelectorAll('a, [tabindex]')) {
    e.focus();
    if (document.activeElement !== e) faults.push(`no focus: ${e.outerHTML.slice(0, 60)}`);
  }
  document.activeElement.blur();
  scrollTo(0, 0);
  return [...new Set(faults)];
})()
"""


@contextmanager
def served(body: str, *, reload_s: int = 0, policy: str = POLICY) -> Iterator[tuple[str, list[str]]]:
    """Serve the page BODY as the daemon does; yield the address and a list of the requested paths."""
    requested: list[str] = []

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requested.append(self.path)
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Security-Policy", policy)
            self.send_header("Cache-Control", "no-store")
            if reload_s:
                self.send_header("Refresh", f"{reload_s}; url=/")
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/", requested
        finally:
            server.shutdown()
            thread.join()
