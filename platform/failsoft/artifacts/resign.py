"""Signing a published release anew, as when a key is to be retired: its contents and its digest stay what they are."""

from __future__ import annotations

from dataclasses import replace

from failsoft.artifacts.manifest import MANIFEST_NAME, parse_manifest, read_manifest, refuse_outside, verify_files
from failsoft.artifacts.signing import refuse_unsigned, signature_of
from failsoft.artifacts.store import ArtifactStore, write_durably
from failsoft.errors import ArtifactMissingError, ConfigError, DamagedArtifactError


def sign_again(store: ArtifactStore, name: str, *, vouch: bool = False) -> bool:
    """Sign a release with the key that signs now; whether that changed anything.

    Args:
        store: of the releases.
        name: of a published one.
        vouch: whoever orders it knows where the release is from: sign it also if nobody did whose key is accepted.

    Raises:
        ConfigError: no key signs here, or its signatures are not accepted here.
        UntrustedArtifactError: nobody signed it whose key is accepted, and nobody vouches for it.
        DamagedArtifactError: it is torn or changed; such a one is never signed.
        ArtifactMissingError: no such name.
    """
    folder = store.root / name
    path = folder / MANIFEST_NAME
    if not path.is_file():
        raise ArtifactMissingError(
            f"no {store.kind} named {name!r} in {store.root}; list them with: failsoft release ls"
        )
    # read once: what is signed is what was judged, whoever swaps it meanwhile
    manifest = parse_manifest(path.read_bytes(), where=str(path)) if vouch else read_manifest(folder, kind=store.kind)
    if manifest.kind != store.kind:
        raise DamagedArtifactError(f"{folder} is a {manifest.kind}, not a {store.kind}")
    signature = signature_of(store.kind, name, manifest.digest)
    if not signature:
        raise ConfigError("no key signs here: set FAILSOFT_SIGNING_KEY_FILE to one; failsoft release new-key makes it")
    if signature == manifest.signature:
        return False
    refuse_unsigned(store.kind, name, manifest.digest, signature=signature, where="what the key here signs")
    refuse_outside(folder, manifest)
    verify_files(folder, manifest)
    write_durably(path, replace(manifest, signature=signature).to_json().encode())
    return True
