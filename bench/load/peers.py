"""Other proxies that are measured beside trimtab: how each is started, and with what settings.

`{port}`, `{upstream}` and `{folder}` stand for where it listens, the upstream's port and a place for what it writes;
`{executable}` for the program, which is looked for in `FOLDER/NAME/bin`, a virtual environment of its own, then on the
PATH. Windows are wide enough that no peer trims: what is compared is the way through.
"""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A server's command line, and the files that it reads, by name, in its own folder."""

    command: str
    files: Mapping[str, str] = field(default_factory=dict)


KNOWN: Mapping[str, Peer] = {
    "awecompress": Peer(
        command="env AWECOMPRESS_CONFIG_DIR={folder} {executable} serve --config {folder}/settings.json"
        " --port {port} --upstream http://127.0.0.1:{upstream}",
        files={"settings.json": '{"thresholdTokens": 1000000, "dbPath": "{folder}/summaries.db"}'},
    ),
    "context-guardian": Peer(
        command="env HOME={folder} GUARDIAN_PORT={port} GUARDIAN_UPSTREAM_URL=http://127.0.0.1:{upstream}/v1"
        " GUARDIAN_NUM_CTX=1000000 GUARDIAN_DETECT_CONTEXT=off GUARDIAN_VERBOSE=0 {executable}",
    ),
    "litellm": Peer(
        command="env LITELLM_LOCAL_MODEL_COST_MAP=True LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY=true"
        " {executable} --config {folder}/settings.yaml --host 127.0.0.1 --port {port}",
        files={
            "settings.yaml": "model_list:\n- model_name: '*'\n  litellm_params:"
            " {model: 'openai/*', api_base: 'http://127.0.0.1:{upstream}/v1', api_key: sk-bench}\n"
        },
    ),
    "nginx": Peer(
        command="{executable} -p {folder} -c {folder}/nginx.conf",
        files={
            "nginx.conf": "daemon off; pid nginx.pid; error_log stderr; worker_processes 1;\n"
            "events { worker_connections 1024; }\n"
            "http {\n"
            "  access_log off; client_max_body_size 64m; client_body_buffer_size 2m; keepalive_requests 100000000;\n"
            "  upstream bench { server 127.0.0.1:{upstream}; keepalive 128; keepalive_requests 100000000; }\n"
            "  server { listen 127.0.0.1:{port}; location / {\n"
            '    proxy_pass http://bench; proxy_http_version 1.1; proxy_set_header Connection "";\n'
            "    proxy_buffering off; proxy_request_buffering off;\n"
            "  } }\n"
            "}\n"
        },
    ),
}
"""What can be named without a command. nginx only hands on: it is the limit that a proxy can come near."""


def named(given: str, folder: Path | None) -> tuple[str, Peer]:
    """The peer of `NAME`, one of KNOWN, or of `NAME=COMMAND`; virtual environments are in `folder`.

    Raises:
        ValueError: it has another form, or its program is not there.
    """
    name, _, command = given.partition("=")
    if command:
        if not name or "{port}" not in command:
            raise ValueError(f"--peer: must be NAME=COMMAND with {{port}} in the command, got {given!r}")
        return name, Peer(command=command)
    if name not in KNOWN:
        raise ValueError(f"--peer: must be NAME=COMMAND, or one of {', '.join(KNOWN)}, got {given!r}")
    own = folder / name / "bin" / name if folder is not None else None
    executable = str(own) if own is not None and own.is_file() else shutil.which(name)
    if executable is None:
        raise ValueError(f"--peer: {name} is neither in {own or '--peers FOLDER'} nor on the PATH")
    peer = KNOWN[name]
    return name, Peer(command=peer.command.replace("{executable}", executable), files=peer.files)
