# The image that the Helm chart runs (docs/installing.md). Its wheels hold the NATS and
# PostgreSQL servers that the chart brings, which keep their data on volumes.
# The agents of the nodes use it too, as root; NVIDIA's container runtime gives them the driver's library.
#
#   docker build --tag registry.example/gpuledger:0.1.0 .
#
# Without docker and a registry, `make image` builds it on Debian's packages (image/build). This file describes both.
ARG PYTHON=python:3.11-slim
FROM $PYTHON AS build
ENV UV_PROJECT_ENVIRONMENT=/opt/gpuledger \
    UV_COMPILE_BYTECODE=1 \
    UV_LINK_MODE=copy \
    UV_PYTHON_DOWNLOADS=never \
    SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt
RUN command -v uv || pip install --no-cache-dir 'uv>=0.9'
WORKDIR /src
COPY pyproject.toml uv.lock ./
RUN uv sync --frozen --no-dev --no-cache --no-install-project
COPY README.md LICENSE ./
COPY events events
COPY schemas schemas
COPY services services
COPY cli cli
COPY migrations migrations
RUN uv sync --frozen --no-dev --no-cache --no-editable

FROM $PYTHON
LABEL org.opencontainers.image.title=gpuledger \
      org.opencontainers.image.description="Event-sourced control plane for GPUs on Kubernetes" \
      org.opencontainers.image.licenses=Apache-2.0
RUN useradd --uid 65532 --user-group --no-create-home --home-dir /tmp --shell /usr/sbin/nologin gpuledger
COPY --from=build /opt/gpuledger /opt/gpuledger
ENV PATH=/opt/gpuledger/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
USER 65532:65532
WORKDIR /tmp
EXPOSE 8080
ENTRYPOINT ["gpuledger"]
