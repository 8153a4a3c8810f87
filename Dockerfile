# syntax=docker/dockerfile:1
# vlcpctl with the CPU wheels of PyTorch, or with CUDA:
#   docker build -t vlcpctl .
#   docker build -t vlcpctl:cuda --target cuda .
ARG PYTHON=3.11

FROM python:${PYTHON}-slim-bookworm AS base
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY recipes/constraints.txt recipes/
COPY vlcpctl vlcpctl

# A wheel of PyPI for Linux has the CUDA libraries with it: the image needs only the host's driver.
FROM base AS install-cuda
RUN python -m venv /opt/vlcpctl \
    && /opt/vlcpctl/bin/pip install -c recipes/constraints.txt ".[gpu]"

FROM base AS install-cpu
RUN python -m venv /opt/vlcpctl \
    && /opt/vlcpctl/bin/pip install -c recipes/constraints.txt \
        --extra-index-url https://download.pytorch.org/whl/cpu ".[cpu]"

FROM python:${PYTHON}-slim-bookworm AS runtime
# Files in mounted directories belong to this user, or to that of `docker run --user`.
RUN useradd --create-home --uid 1000 vlcpctl \
    && mkdir /data /cache \
    && chown vlcpctl:vlcpctl /data /cache \
    && chmod 1777 /data /cache
ENV PATH=/opt/vlcpctl/bin:$PATH \
    HOME=/cache \
    XDG_CACHE_HOME=/cache \
    HF_HOME=/cache/huggingface \
    PYTHONUNBUFFERED=1
USER 1000
WORKDIR /data
VOLUME ["/data", "/cache"]
ENTRYPOINT ["vlcpctl"]
CMD ["--help"]

FROM runtime AS cuda
ENV NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
COPY --from=install-cuda /opt/vlcpctl /opt/vlcpctl

# The last stage is the one that is built without --target.
FROM runtime AS cpu
COPY --from=install-cpu /opt/vlcpctl /opt/vlcpctl
