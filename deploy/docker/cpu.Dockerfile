# docker build -f deploy/docker/cpu.Dockerfile -t tickpath:cpu .
FROM python:3.11-slim-bookworm AS build
# As an environment variable it also holds for what the build itself needs.
ENV PIP_CONSTRAINT=/src/constraints.txt PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /src
COPY pyproject.toml constraints.txt README.md ./
COPY clients/python clients/python
COPY clients/vectors clients/vectors
COPY engines engines
COPY graphs graphs
COPY loadtest loadtest
COPY server server
RUN python -m venv /opt/tickpath && /opt/tickpath/bin/pip install '.[server,door,openvino]'

FROM python:3.11-slim-bookworm
COPY --from=build /opt/tickpath /opt/tickpath
COPY deploy/docker/healthcheck.py /opt/tickpath/healthcheck.py
COPY deploy/docker/tickpath.toml /etc/tickpath/tickpath.toml
# Nothing is written but sockets, in /run/tickpath, and weights as large models load, in /tmp: both are best tmpfs.
ENV PATH=/opt/tickpath/bin:/usr/local/bin:/usr/bin:/bin HOME=/tmp PYTHONDONTWRITEBYTECODE=1
RUN mkdir -p /models /run/tickpath && chown 65532:65532 /run/tickpath
# A number, so that a cluster can see that it is not root.
USER 65532:65532
EXPOSE 7070 9090
# As long as the largest model takes to load; until then the container is `starting`.
HEALTHCHECK --start-period=120s --interval=10s --timeout=3s CMD ["python", "-IS", "/opt/tickpath/healthcheck.py"]
# Nothing stands between the signal and the server: as process 1 it takes in orphans itself.
STOPSIGNAL SIGTERM
ENTRYPOINT ["tickpath", "serve"]
CMD ["--config", "/etc/tickpath/tickpath.toml"]
