"""The script that Dataflow's launcher runs by its path: logloom.pipelines.build.template.

It has a folder of its own, since Python looks for modules beside a script first: beside the template those
of pipelines would stand in place of other packages' of the same names, such as `build`.
"""

from logloom.pipelines.build.template import main

if __name__ == "__main__":
    main()
