"""The script that Dataflow's launcher runs: logloom.pipelines.dataflow.template.

Python looks for modules beside a script first: their names must be none of other packages.
"""

from logloom.pipelines.dataflow.template import main

if __name__ == "__main__":
    main()
