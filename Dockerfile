# docker build -t trimtab . && docker run --rm --read-only -p 8080:8080 trimtab
#   --build-arg WITH_EMBEDDINGS=0        leaves the embedding model out, and torch, which is most of the image
#   --build-arg PIP_EXTRA_INDEX_URL=...  an index with torch's builds for processors alone, which are much smaller
FROM python:3.13-slim AS build

WORKDIR /src
COPY requirements.lock requirements-build.lock requirements-otel.lock ./
RUN python -m venv /build \
    && /build/bin/pip install --no-cache-dir --require-hashes -r requirements-build.lock \
    && python -m venv --without-pip /venv \
    && /build/bin/pip --python /venv/bin/python install --no-cache-dir --require-hashes \
        -r requirements.lock -r requirements-otel.lock
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY policies policies
COPY proxy proxy
RUN /build/bin/pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /dist . \
    && /build/bin/pip --python /venv/bin/python install --no-cache-dir --no-deps /dist/*.whl
ARG WITH_EMBEDDINGS=1
ARG PIP_EXTRA_INDEX_URL=
COPY constraints-embeddings.txt ./
# Not hashed, since torch's builds differ from place to place; what the lock has installed stays as it is.
RUN if [ "$WITH_EMBEDDINGS" != 0 ]; then \
        /build/bin/pip --python /venv/bin/python install --no-cache-dir -c constraints-embeddings.txt torch \
        && /build/bin/pip --python /venv/bin/python install --no-cache-dir -c constraints-embeddings.txt \
            "$(echo /dist/*.whl)[embeddings]"; \
    fi
# Unpacked here, so that the root file system may be read-only there; for any user, since temporary files are private.
# hadolint ignore=DL3064
ENV TIKTOKEN_CACHE_DIR=/venv/share/tiktoken
RUN /venv/bin/python -c "from proxy.tokens import tokenizers; [tokenizers.load(name) for name in tokenizers.RANKS]" \
    && chmod -R a+rX "$TIKTOKEN_CACHE_DIR"


FROM python:3.13-slim

# Nothing is installed into a running container.
RUN python -m pip uninstall --yes pip
COPY --from=build /venv /venv
# In a container /dev/shm can be written, read-only or not: torch and the metrics of several workers want a folder.
# TIKTOKEN_CACHE_DIR is no secret.
# hadolint ignore=DL3064
ENV PATH=/venv/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    TMPDIR=/dev/shm \
    TIKTOKEN_CACHE_DIR=/venv/share/tiktoken
# A number, so that Kubernetes can see that it is not root.
USER 10001:10001
WORKDIR /tmp
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8080/healthz', timeout=2)"]
ENTRYPOINT ["trimtab"]
CMD ["serve", "--host", "0.0.0.0"]
