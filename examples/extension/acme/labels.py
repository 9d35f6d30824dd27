import numpy as np

import logloom


@logloom.derive
def is_hard(rows):
    """Whether the brakes were hit."""
    return np.linalg.norm(rows["acceleration"], axis=1) > 4
