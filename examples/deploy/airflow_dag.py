"""A build every night, as a DAG of Airflow 3; then a share of what the version holds is read back.

logloom has an environment of its own, so that its packages and Airflow's don't meet: point LOGLOOM there.
"""

import datetime
import os

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG, Param

LOGLOOM = os.environ.get("LOGLOOM", "/opt/logloom/bin/logloom")

with DAG(
    "logloom_urban",
    schedule="0 2 * * *",
    start_date=datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
    catchup=False,  # a build takes in all that is new, so missed nights need none of their own
    max_active_runs=1,
    params={
        "recipe": Param("gs://drives/recipe.yaml", type="string"),
        "root": Param("gs://datasets/urban", type="string"),
    },
    default_args={"retries": 2, "retry_delay": datetime.timedelta(minutes=10)},
) as dag:
    # By the environment, not by the command: a parameter is text that somebody typed.
    named = {"LOGLOOM": LOGLOOM, "RECIPE": "{{ params.recipe }}", "ROOT": "{{ params.root }}"}
    build = BashOperator(
        task_id="build",
        bash_command='"$LOGLOOM" build "$RECIPE" --to "$ROOT" --quiet',
        env=named,
        append_env=True,
        execution_timeout=datetime.timedelta(hours=12),
    )
    verify = BashOperator(
        task_id="verify",
        bash_command='"$LOGLOOM" verify "$ROOT" --sample sample:0.05',
        env=named,
        append_env=True,
    )
    build >> verify
