"""The one style sheet of the console: light and dark, from 360 pixels on, focus always visible."""

__all__ = ["STYLE"]

STYLE = """\
:root { color-scheme: light dark; --back: #ffffff; --text: #1a1a1a; --line: #c4c4c4;
  --link: #0b4fa3; --bar: #f0f2f5; --bad: #9c1c1c; }
@media (prefers-color-scheme: dark) { :root { --back: #14171a; --text: #ececec; --line: #4a4f55;
  --link: #8ec1ff; --bar: #1f2429; --bad: #ff9d9d; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--text);
  font: 1rem/1.5 system-ui, sans-serif; }
header { background: var(--bar); border-bottom: 1px solid var(--line); padding: .5rem 1rem;
  display: flex; flex-wrap: wrap; gap: .5rem 1.5rem; align-items: center; }
.node { margin: 0; font-weight: 700; }
nav ul { list-style: none; display: flex; flex-wrap: wrap; gap: .25rem 1rem; margin: 0;
  padding: 0; }
a { color: var(--link); }
a[aria-current] { font-weight: 700; color: var(--text); }
:focus-visible { outline: 3px solid var(--link); outline-offset: 2px; }
.skip { position: absolute; left: -999rem; }
.skip:focus { left: 1rem; top: .5rem; background: var(--back); padding: .5rem; }
main { padding: 0 1rem 2rem; max-width: 80rem; overflow-wrap: anywhere; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 700; padding: .5rem 0; }
th, td { text-align: left; border-bottom: 1px solid var(--line); padding: .3rem .6rem .3rem 0;
  vertical-align: top; }
th { overflow-wrap: normal; }
form { display: flex; flex-wrap: wrap; gap: .5rem 1rem; align-items: end; margin: .75rem 0; }
label { display: flex; flex-direction: column; max-width: 100%; min-width: 0; }
input, textarea, button { font: inherit; color: inherit; background: var(--back);
  padding: .4rem .6rem; border: 1px solid var(--text); border-radius: .25rem;
  min-height: 2.5rem; max-width: 100%; }
input[type=checkbox] { min-height: 0; width: 1.25rem; height: 1.25rem; }
input[type=file] { width: 100%; }
.choice { flex-direction: row; align-items: center; gap: .5rem; min-height: 2.5rem; }
.wide { flex: 1 1 100%; }
textarea { width: 100%; font: .9rem/1.4 ui-monospace, monospace; }
button { background: var(--bar); cursor: pointer; }
pre { background: var(--bar); padding: .75rem; overflow-x: auto; white-space: pre-wrap; }
.bad { color: var(--bad); font-weight: 700; }
.said { border-left: .4rem solid var(--link); padding: .5rem .75rem; background: var(--bar); }
@media (max-width: 40rem) {
  thead { position: absolute; left: -999rem; }
  tr { display: block; border-bottom: 2px solid var(--line); padding: .5rem 0; }
  td { display: flex; gap: .75rem; border: 0; padding: .1rem 0; }
  td::before { content: attr(data-label); font-weight: 700; min-width: 8rem; flex: none; }
}
"""
