"""A served agent, for the tests that need one."""

from tests.fakes.agent import agent as agent
from tests.fakes.agent import delegated as delegated
from tests.fakes.agent import reviews as reviews
from tests.fakes.agent import sampler as sampler
from tests.fakes.agent import unserved as unserved
