"""Instance masks from the pixels of a video alone: the paper's model-independent RGB bank.

For videos that come without masks, as Obj3D does. Colour finds regions (`regions`); convexity,
size and edges weigh every cut through a region (`cuts`); time decides what a frame leaves open
(`split`): two objects seen apart stay two while they touch, and one that stays whole is not
divided by a reflection that passes over it. Objects then keep their numbers (`identities`).
"""

from geoco.instances.find import find_instances, grow_masks
from geoco.instances.scores import Scores, score_masks

__all__ = ["Scores", "find_instances", "grow_masks", "score_masks"]
