#!/usr/bin/env bash
# Makes build/site/html of docs/, the README and the references of C++ (Doxygen, in REFERENCE) and Python. A link that leads
# nowhere is an error.
#
#   tools/site/build.sh MKDOCS REFERENCE
set -euo pipefail
mkdocs=$(realpath "$1")
reference=$(realpath -m "$2")
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

readonly pages=build/site/pages
rm -rf build/site
mkdir -p $pages/bench/results
cp -r docs/*.md docs/start $pages/
cp bench/results/*.md bench/results/*.svg $pages/bench/results/
cp bench/README.md $pages/bench/
cp CHANGELOG.md $pages/changes.md
cp README.md $pages/index.md
cp CONTRIBUTING.md $pages/contributing.md
cp SECURITY.md $pages/security.md
printf '# The C++ reference\n\n<a href="reference/index.html">All public headers</a>, made by Doxygen.\n' >$pages/reference_cpp.md
printf '# The Python reference\n\n::: linnet\n' >$pages/reference_python.md

# The README lies beside docs, here among them. What is not a page (sources) is named, not linked.
sed -i -E 's#\]\(docs/#](#g; s#\]\(CHANGELOG\.md#](changes.md#g; s#\]\(CONTRIBUTING\.md#](contributing.md#g; s#\]\(SECURITY\.md#](security.md#g' \
  $pages/*.md
find $pages -name '*.md' -print0 | xargs -0 sed -i -E \
  's#\]\(((\.\./)+)docs/#](\1#g; s#\]\(\.\./(bench/(results/|README))#](\1#g; s#\[([^]]*)\]\((\.\./)*(src|examples|include|tools|tests|bench)/([^)]*\.(h|cpp|py|toml|sh)|NOTES\.md|src/README\.md|README\.md)[^)]*\)#\1#g'
# --strict counts the warnings that are printed, so that --quiet would switch it off.
(cd tools/site && NO_MKDOCS_2_WARNING=1 "$mkdocs" build --strict) >build/site/log 2>&1 ||
  { grep -E '^(WARNING|ERROR|Aborted|  - )' build/site/log >&2; exit 1; }
# A browser starts no worker from a file, so that search from a folder fails; the theme asks another site for a remedy. Here the
# worker's text is part of the pages.
python3 - build/site/html <<'PYTHON'
import glob, json, os, re, sys

root = sys.argv[1]
(worker,) = glob.glob(root + "/assets/javascripts/workers/search.*.min.js")
with open(root + "/assets/javascripts/worker.js", "w") as out:
    out.write("if (location.protocol === 'file:') {\n  const Served = Worker, text = " +
              json.dumps(open(worker).read()).replace("</", "<\\/") +
              ";\n  window.Worker = function () { return new Served(URL.createObjectURL(new Blob([text]))); };\n}\n")
for path in glob.glob(root + "/**/*.html", recursive=True):
    page = open(path).read()
    up = os.path.relpath(root, os.path.dirname(path))
    page = re.sub(r'<script src="https://[^"]*iframe-worker[^"]*"></script>',
                  f'<script src="{up}/assets/javascripts/worker.js"></script>', page)
    if re.search(r'(src|href)="https?://[^"]*\.(js|css|woff2?)', page):
        sys.exit(f"{path} fetches something from elsewhere")
    open(path, "w").write(page)
PYTHON
if [[ -d $reference/html ]]; then cp -r "$reference/html" build/site/html/reference; fi
