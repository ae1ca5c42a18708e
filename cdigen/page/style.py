"""The style sheet of the page (``STYLE``), and its source expression for the policy (``digest``).

The colours are the colours of topology.svg. The contrast of text to its background is at least 4.5.
"""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256

_COLOURS = (
    ("page", "#ffffff", "#0d1117"),
    ("ink", "#1c2128", "#e6edf3"),
    ("soft", "#505a64", "#a9b3bd"),
    ("rule", "#d5dbe1", "#2b333d"),
    ("area", "#f4f6f8", "#151b23"),
    ("good", "#11683a", "#63d38a"),
    ("wait", "#8a4600", "#f0a860"),
    ("bad", "#b3161f", "#ff9a93"),
    ("link", "#0a58b5", "#6cb2ff"),
)
_RULES = """
*{box-sizing:border-box}
html{color-scheme:light dark;-webkit-text-size-adjust:100%}
body{margin:0 auto;max-width:96rem;padding:1.5rem clamp(1rem,3vw,3rem) 3rem;background:var(--page);
color:var(--ink);font:1rem/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",Arial,sans-serif;
font-variant-numeric:tabular-nums;overflow-wrap:anywhere}
h1{font-size:1.125rem;font-weight:600;margin:.75rem 0 0;color:var(--soft)}
h2{font-size:1.125rem;font-weight:600;margin:2.5rem 0 .75rem}
p{margin:.25rem 0}
a{color:var(--link)}
a:focus-visible,[tabindex]:focus-visible{outline:3px solid var(--link);outline-offset:2px;border-radius:2px}
code{font:.875em ui-monospace,"SF Mono",Menlo,"DejaVu Sans Mono",monospace}
.verdict{margin:.25rem 0 0}
.verdict strong{font-size:2rem;line-height:1.25;margin-right:.25rem}
.state,.mark{white-space:nowrap}
.state{font-weight:600}
.mark{width:.75em;height:.75em;margin-right:.4em;fill:currentColor;flex:none}
.good{color:var(--good)}.wait{color:var(--wait)}.bad{color:var(--bad)}.none,.soft,.note{color:var(--soft)}
.facts{display:flex;flex-wrap:wrap;gap:.75rem 2.5rem;margin:1.25rem 0 0}
.facts dt{font-size:.875rem;color:var(--soft)}
.facts dd{margin:0;font-size:1.125rem;font-weight:600}
.todo{list-style:none;margin:0;padding:0;max-width:64rem}
.todo li{display:flex;gap:.4rem;padding:.6rem 0;border-top:1px solid var(--rule)}
.todo .mark{margin-top:.42em}
.todo div{color:var(--ink);min-width:0}
.todo .remedy::before{content:"→ ";color:var(--soft)}
table{border-collapse:collapse;width:100%;font-size:.9375rem;margin:0 0 1rem}
th,td{text-align:left;vertical-align:top;padding:.5rem 1.25rem .5rem 0;font-weight:400}
thead th{font-size:.875rem;color:var(--soft);padding-bottom:.25rem;white-space:nowrap}
table:not(.devices) tbody th{overflow-wrap:break-word}
tbody tr{border-top:1px solid var(--rule)}
th:last-child,td:last-child{padding-right:0}
.name{font-weight:600}
.stat{white-space:nowrap;margin-right:.5rem}
.soft:not(text),.note,.cause{font-size:.875rem}
.devices tbody{border-top:1px solid var(--rule)}
.devices .part{border-top:0}
.devices .part th,.devices .part td{padding-top:.125rem;padding-bottom:.25rem}
.devices .part th{padding-left:1rem}
.devices thead th{width:11.5%}
.devices thead th:nth-child(1){width:30.5%}
.devices thead th:nth-child(2){width:19.5%}
.devices thead th:nth-child(6){width:auto}
.bar{display:block;width:100%;max-width:8rem;height:4px;margin:.3rem 0}
.track{fill:var(--rule)}.fill{fill:var(--soft)}
.wide{overflow-x:auto;padding:2px}
.wide svg{display:block}
footer{margin-top:3rem;padding-top:.75rem;border-top:1px solid var(--rule);color:var(--soft);
font-size:.875rem;display:flex;flex-wrap:wrap;gap:.25rem 1.25rem}
@media (max-width:46rem){
table,tbody,tr,th{display:block;width:auto!important}
thead{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}
tbody tr{padding:.6rem 0}
th,td,.devices .part th,.devices .part td{padding:.1rem 0}
.empty{display:none}
td:not(.empty){display:grid;grid-template-columns:6.5rem minmax(0,1fr);gap:.75rem}
td::before{content:attr(data-label);color:var(--soft);font-size:.875rem;line-height:1.5rem}
.devices .part{margin-left:.75rem;padding:.4rem 0 .4rem .75rem;border-left:2px solid var(--rule)}
}
@media (forced-colors:active){.fill{fill:CanvasText}.track{fill:GrayText}}
"""


def _sheet() -> str:
    light = "".join(f"--{name}:{colour};" for name, colour, _ in _COLOURS)
    dark = "".join(f"--{name}:{colour};" for name, _, colour in _COLOURS)
    rules = "".join(_RULES.splitlines())
    return f":root{{{light}}}@media (prefers-color-scheme:dark){{:root{{{dark}}}}}{rules}"


STYLE = _sheet()


def digest(style: str) -> str:
    """Return the source expression of a Content-Security-Policy for the style sheet STYLE (CSP 3, 2.3.1)."""
    return f"'sha256-{b64encode(sha256(style.encode()).digest()).decode()}'"
