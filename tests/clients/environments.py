"""Makes the environments of the clients: `python -m tests.clients.environments`.

Python clients disagree about their dependencies, so each gets a folder of its own in `.clients/`, from the releases in
`requirements/`; Node's come from `node/package-lock.json`. What the registries do not have is told, and left out.
"""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.clients.matrix import CLIENTS, HERE, MADE, NODE, RAN, Client

UV = MADE / "uv" / "bin" / "uv"
FOUND, MISSING = "installed", "left out"


def main() -> int:
    """Make all of them. 1 if none could be made."""
    RAN.unlink(missing_ok=True)
    made = [_installer() and _python(client) for client in CLIENTS if not client.node]
    made.append(_node())
    return 0 if any(made) else 1


def _installer() -> bool:
    if UV.exists():
        return True
    environment = MADE / "uv"
    pip = [environment / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "--quiet"]
    return _run("uv", [sys.executable, "-m", "venv", environment]) and _run(
        "uv", [*pip, "install", "-r", HERE / "requirements" / "uv.txt"]
    )


def _python(client: Client) -> bool:
    """A virtual environment with exactly what is pinned; nothing to do where it has been made from that already."""
    pinned = HERE / "requirements" / f"{client.name}.txt"
    environment = MADE / client.name
    stamp = environment / "made-from.txt"
    if stamp.exists() and stamp.read_bytes() == pinned.read_bytes():
        return True
    shutil.rmtree(environment, ignore_errors=True)
    done = _run(client.name, [UV, "venv", "--quiet", "--python", sys.executable, environment]) and _run(
        client.name, [UV, "pip", "sync", "--quiet", "--python", environment / "bin" / "python", pinned]
    )
    if done:
        shutil.copy(pinned, stamp)
        print(f"{client.name} {client.version}: {FOUND}", flush=True)
    else:
        shutil.rmtree(environment, ignore_errors=True)
    return done


def _node() -> bool:
    npm = shutil.which("npm")
    if npm is None:
        print(f"node: {MISSING}, there is no npm on this machine", flush=True)
        return False
    lock, stamp = NODE / "package-lock.json", NODE / "node_modules" / ".made-from.json"
    if stamp.exists() and stamp.read_bytes() == lock.read_bytes():
        return True
    if not _run("node", [npm, "ci", "--no-audit", "--no-fund", "--loglevel=error"], folder=NODE):
        shutil.rmtree(NODE / "node_modules", ignore_errors=True)
        return False
    shutil.copy(lock, stamp)
    print(
        ", ".join(f"{client.package} {client.version}" for client in CLIENTS if client.node) + f": {FOUND}", flush=True
    )
    return True


def _run(name: str, command: Sequence[str | Path], folder: Path | None = None) -> bool:
    """Run an installer; where it fails, say for whom and with its last words."""
    ended = subprocess.run([str(part) for part in command], cwd=folder, capture_output=True, text=True, check=False)
    if ended.returncode:
        words = (ended.stderr or ended.stdout).strip().splitlines()[-3:]
        print(f"{name}: {MISSING}, its installation failed: {' '.join(words)}", flush=True)
    return not ended.returncode


if __name__ == "__main__":
    sys.exit(main())
