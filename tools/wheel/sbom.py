"""A CycloneDX bill of materials of a carried wheel, where PEP 770 wants it.

It says what the wheel is made of: upstream's wheel as the ancestor, with the patches in its
pedigree, and each overlay file. What the wheel requires is in METADATA and not repeated.
"""

import uuid
from datetime import UTC, datetime

from cyclonedx.model import AttachedText, HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import (
    Commit,
    Component,
    ComponentType,
    Diff,
    Patch,
    PatchClassification,
    Pedigree,
)
from cyclonedx.model.tool import ToolRepository
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL
from packaging.utils import canonicalize_name

from tools.wheel.provenance import Provenance
from tools.wheel.repack import GENERATOR, RepackPlan

SBOM = "sboms/vllm-exaone.cdx.json"  # PEP 770: the sboms directory of *.dist-info
NAMESPACE = uuid.UUID("8e1f9d3e-6f0b-5d0a-9c55-2f6b5c1a7d10")
# How the outcome of a patch is called here; others did not change the tree.
CARRIED = ("clean", "structural")


def render_sbom(
    provenance: Provenance, plan: RepackPlan, upstream_wheel: str, upstream_sha256: str
) -> bytes:
    """Return the CycloneDX 1.6 document for a wheel.

    Args:
        provenance: What the carried tree was made from.
        plan: What became of each change in the wheel.
        upstream_wheel: The file name of upstream's wheel.
        upstream_sha256: Its digest.
    """
    name = canonicalize_name(plan.name.distribution)
    ancestor = Component(
        name=name,
        version=str(plan.upstream_version),
        type=ComponentType.LIBRARY,
        bom_ref="upstream",
        purl=PackageURL(
            "pypi", None, name, str(plan.upstream_version), {"file_name": upstream_wheel}
        ),
        hashes=[_sha256(upstream_sha256)],
    )
    wheel = Component(
        name=name,
        version=str(plan.name.version),
        type=ComponentType.LIBRARY,
        bom_ref="wheel",
        purl=PackageURL("pypi", None, name, str(plan.name.version)),
        pedigree=Pedigree(
            ancestors=[ancestor],
            commits=[Commit(uid=provenance.commit, message=f"upstream {provenance.ref}")],
            patches=[
                Patch(
                    type=PatchClassification.UNOFFICIAL,
                    diff=Diff(
                        text=AttachedText(
                            content=f"{patch.file} sha256:{patch.sha256} {patch.outcome}"
                        )
                    ),
                )
                for patch in provenance.patches
                if patch.outcome in CARRIED
            ],
        ),
        properties=[Property(name="vllm-exaone:carried-commit", value=provenance.carried_commit)],
    )
    files = [
        Component(
            name=laid.target,
            type=ComponentType.FILE,
            bom_ref=f"overlay:{laid.target}",
            hashes=[_sha256(laid.sha256)],
        )
        for laid in provenance.overlay
    ]
    tool = Component(
        name=GENERATOR,
        version=provenance.tool_version,
        type=ComponentType.APPLICATION,
        bom_ref="tool",
    )
    bom = Bom(
        components=files,
        # A random serial number and the present hour would make two builds differ.
        serial_number=uuid.uuid5(
            NAMESPACE, f"{plan.name} {upstream_sha256} {provenance.carried_commit}"
        ),
        metadata=BomMetaData(
            component=wheel,
            tools=ToolRepository(components=[tool]),
            timestamp=datetime(*plan.date_time, tzinfo=UTC),
        ),
    )
    bom.register_dependency(wheel, files)
    output = make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6)
    return output.output_as_string(indent=2).encode() + b"\n"


def _sha256(digest: str) -> HashType:
    return HashType(alg=HashAlgorithm.SHA_256, content=digest)
