"""What can go wrong in deciding, by whose fault it is.

PolicyError      a policy that does not exist, cannot have these options, or cannot decide
└── PlanError    a plan that breaks a promise
"""


class PolicyError(Exception):
    """A policy that cannot be used: `problems` are lines of «path.of.key: what is wrong, got value»."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class PlanError(PolicyError):
    """A plan that must not be carried out, with the first promise it breaks."""
