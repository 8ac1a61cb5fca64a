"""Plans: the costs and leaks of every matcher, and the order in which to consider them."""

from typing import TYPE_CHECKING

from ccbps.loading import on_first_use

if TYPE_CHECKING or not on_first_use(__name__):
    from ccbps.planner.candidates import Candidate as Candidate
    from ccbps.planner.candidates import Load as Load
    from ccbps.planner.candidates import Refusal as Refusal
    from ccbps.planner.leaks import Leak as Leak
    from ccbps.planner.plain import Plain as Plain
    from ccbps.planner.planning import Plan as Plan
    from ccbps.planner.planning import plan as plan
