"""A catalogue for tests that need no deployment."""

from tickpath.server.catalogue import Catalogue
from tickpath.server.version import Version


def catalogue_of(*versions: Version) -> Catalogue:
    """Each version is the live one of its model, and their handles count from 0."""
    catalogue = Catalogue()
    for version in versions:
        catalogue.add(version)
        catalogue.make_live(version)
    return catalogue
