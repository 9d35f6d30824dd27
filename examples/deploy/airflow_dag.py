"""A build every night, as a DAG of Airflow 3; then a share of what the version holds is read back.

logloom has an environment of its own, so that its packages and Airflow's don't meet: point LOGLOOM there.
"""

import datetime
import os

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG, Param
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException


class Build(BashOperator):
    """A build whose exit codes 2 and 3 fail the task at once, without another try.

    2 is a mistake in the recipe. 3 is a version that was committed without damaged logs; another try would
    find it up to date, and end green. After 4, a version whose view could not be made, another try makes it.
    """

    def execute(self, context):
        try:
            return super().execute(context)
        except AirflowSkipException as error:
            raise AirflowFailException(f"the log of this task says what is wrong: {error}") from error


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
    build = Build(
        task_id="build",
        # --wait: a try whose worker was lost to Airflow may still run.
        bash_command='"$LOGLOOM" build "$RECIPE" --to "$ROOT" --quiet --wait',
        skip_on_exit_code=[2, 3],
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
