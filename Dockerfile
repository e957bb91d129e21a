# The image that the Helm chart runs (docs/installing.md). It stores nothing: NATS and PostgreSQL run elsewhere.
# The agents of the nodes use it too, as root; NVIDIA's container runtime gives them the driver's library.
#
#   docker build --tag registry.example/gpuledger:0.1.0 .
FROM python:3.11-slim AS build
ENV UV_PROJECT_ENVIRONMENT=/opt/gpuledger \
    UV_COMPILE_BYTECODE=1 \
    UV_LINK_MODE=copy \
    UV_PYTHON_DOWNLOADS=never
RUN pip install --no-cache-dir 'uv>=0.9'
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

FROM python:3.11-slim
RUN useradd --uid 65532 --user-group --no-create-home --home-dir /tmp --shell /usr/sbin/nologin gpuledger
COPY --from=build /opt/gpuledger /opt/gpuledger
ENV PATH=/opt/gpuledger/bin:$PATH
USER 65532:65532
WORKDIR /tmp
EXPOSE 8080
ENTRYPOINT ["gpuledger"]
