# What submits builds to a Flink cluster: the workers' image, with Java and Beam's job server.
#
#   docker build -f submit.Dockerfile -t europe-west4-docker.pkg.dev/PROJECT/logloom/submit:1 .

FROM europe-west4-docker.pkg.dev/PROJECT/logloom/worker:1
RUN apt-get update && apt-get install --yes --no-install-recommends openjdk-17-jre-headless maven
ENV LOGLOOM_CACHE=/opt/logloom/cache
RUN python -m logloom.runners.flink.jars
