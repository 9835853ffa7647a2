"""The overview page's style sheet, and the policy that allows it alone; pure."""

from __future__ import annotations

import base64
import hashlib

STYLE = """
:root{color-scheme:light dark;
--bg:#f6f7f9;--card:#fff;--text:#1b1f24;--dim:#57606a;--rule:#d8dee4;
--line:#0b62c4;--area:#0b62c422;--bad:#b3261e;--good:#1a7f37}
@media(prefers-color-scheme:dark){:root{
--bg:#0f1318;--card:#181d24;--text:#e6eaef;--dim:#9aa4af;--rule:#2c343d;
--line:#6cb2ff;--area:#6cb2ff2b;--bad:#ff8a80;--good:#5fd38d}}
*{box-sizing:border-box}
body{margin:0 auto;padding:1rem;max-width:76rem;
background:var(--bg);color:var(--text);
font:15px/1.45 system-ui,sans-serif;overflow-wrap:anywhere}
header{display:flex;flex-wrap:wrap;gap:.2rem 1rem;align-items:baseline}
h1{font-size:1.35rem;margin:0}
h2{font-size:1rem;margin:1.4rem 0 .5rem}
p{margin:.2rem 0}
a{color:var(--line)}
ul{margin:0;padding:0;list-style:none}
.dim,small{color:var(--dim);font-size:.85em}
.bad{color:var(--bad);font-weight:600}
.good{color:var(--good)}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(9.5rem,1fr));gap:.7rem}
.tile,.card{background:var(--card);border:1px solid var(--rule);
border-radius:.5rem;padding:.6rem .8rem}
.card+.card{margin-top:.5rem}
.tile b{font-size:1.3rem;font-weight:600}
svg{display:block;width:100%;height:3rem;overflow:visible}
path{fill:none;stroke:var(--line);stroke-width:1.5;vector-effect:non-scaling-stroke}
.area{fill:var(--area);stroke:none}
table{width:100%;border-collapse:collapse;background:var(--card);border:1px solid var(--rule);
border-radius:.5rem}
th{font-size:.85em;font-weight:500;color:var(--dim);text-align:left}
th,td{padding:.35rem .6rem;border-top:1px solid var(--rule);vertical-align:top}
td svg{height:1.4rem;min-width:5rem}
td small{display:block}
.n{width:8.5rem;white-space:nowrap}
.checks{display:flex;flex-wrap:wrap;gap:.3rem 1.2rem}
@media(max-width:44rem){
thead{display:none}
tr{display:grid;grid-template-columns:1fr 1fr;border-top:1px solid var(--rule)}
td{border:0;padding:.2rem .6rem}
td:first-child{grid-column:1/-1}
.n{width:auto}
td[data-of]::before{content:attr(data-of);
display:block;font-size:.8em;color:var(--dim)}
}
"""

_DIGEST = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
# Nothing runs, nothing is loaded, nobody frames the page.
POLICY = (
    f"default-src 'none'; style-src 'sha256-{_DIGEST}'; base-uri 'none'; form-action 'none';"
    " frame-ancestors 'none'"
)
