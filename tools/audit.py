"""What is known to be vulnerable among everything that is locked, for every Python and system, as pip-audit finds it.

Markers are left aside: what is locked for another system is looked at too. Ends with 0 where nothing was found, 1 where
something was, and 2 where the service did not answer for every pin, since then nothing is known.
"""

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
PIP_AUDIT = ROOT / ".tools" / "bin" / "pip-audit"
HASHED = tuple(sorted(ROOT.glob("requirements*.lock")))
UNHASHED = (ROOT / "constraints-embeddings.txt", ROOT / "tests" / "shipping" / "requirements.txt")

# What cannot be mended by an upgrade: the advisory, and why it does no harm here.
EXPLAINED: Mapping[str, str] = {}

_PIN = re.compile(
    r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;\\]+)[^\\\n]*(?P<hashes>(?:\\\n[^\n\\]*)*)", re.MULTILINE
)
_QUIETLY = ("--strict", "--disable-pip", "--progress-spinner", "off")
_FOUND = re.compile(r"^Found \d+ known vulnerabilit", re.MULTILINE)


class NotAnsweredError(Exception):
    """The service was not reached, or knew nothing of a pin."""


def pins(texts: Sequence[str]) -> Iterator[list[str]]:
    """The requirements of all these locks without markers and doubles, in lists with one version of each package."""
    versions: dict[str, dict[str, str]] = {}
    for text in texts:
        for pin in _PIN.finditer(text):
            at, hashes = pin["version"], pin["hashes"]
            versions.setdefault(pin["name"].lower(), {})[at] = f"{pin['name']}=={at} {hashes}".rstrip()
    while versions:
        yield [each.pop(next(iter(each))) for each in versions.values()]
        versions = {name: each for name, each in versions.items() if each}


def vulnerable(requirements: Sequence[str], *options: str) -> bool:
    """Whether pip-audit finds something in these; it says what on standard output. Raises `NotAnsweredError`."""
    with TemporaryDirectory() as folder:
        file = Path(folder, "requirements.txt")
        file.write_text("\n".join(requirements) + "\n")
        command = [str(PIP_AUDIT), *_QUIETLY, *options, "-r", str(file)]
        ended = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)  # noqa: S603 - own command
    if ended.returncode and not _FOUND.search(ended.stderr):
        raise NotAnsweredError((ended.stderr.strip().splitlines() or ["it says nothing"])[-1])
    return bool(ended.returncode)


def main(arguments: Sequence[str], explained: Mapping[str, str] = EXPLAINED) -> int:
    """Look at every lock; the arguments are pip-audit's."""
    options = [*arguments, *(part for each in explained for part in ("--ignore-vuln", each))]
    found, count = False, 0
    try:
        for files, mode in ((HASHED, "--require-hashes"), (UNHASHED, "--no-deps")):
            for requirements in pins([file.read_text() for file in files]):
                found |= vulnerable(requirements, mode, *options)
                count += len(requirements)
    except NotAnsweredError as error:
        sys.stderr.write(
            f"Not audited, so nothing is known: {error}\n"
            'Another service: make audit AUDIT_ARGS="-s osv", or one of your own: AUDIT_ARGS="-s osv --osv-url URL"\n'
        )
        return 2
    for advisory, reason in explained.items():
        sys.stdout.write(f"Explained: {advisory}: {reason}\n")
    if found:
        sys.stderr.write("Upgrade what is named above, or explain it in tools/audit.py\n")
        return 1
    sys.stdout.write(f"{count} pins, none with a known vulnerability\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
