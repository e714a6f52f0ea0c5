FROM python:3.13-slim AS build
RUN python -m venv --without-pip /opt/sublet
WORKDIR /src
COPY . .
RUN pip --no-cache-dir --python /opt/sublet install '.[http]'

FROM python:3.13-slim
COPY --from=build /opt/sublet /opt/sublet
ENV PATH=/opt/sublet/bin:$PATH HOME=/tmp PYTHONUNBUFFERED=1 SUBLET_HOST=0.0.0.0 PORT=8377
WORKDIR /app
COPY examples examples
USER 10001:10001
EXPOSE 8377
CMD ["sublet", "serve"]
