//! Access control lists: who owns a bucket or object, and what others may do with it.
//!
//! Invariants:
//! 1. A list is never stored for what is private to the bucket's owner: no document means exactly that.
//! 2. The owner can always read and change the list; everything else must be granted.
//! 3. Grants to groups are shown before those to accounts, as S3 lists them.

use claystone_meta::BucketRecord;
use claystone_object::Attributes;
use s3s::dto::{
    AccessControlPolicy, Grant as DtoGrant, Grantee as DtoGrantee, Owner, Permission as DtoPermission, Type,
};
use s3s::{S3Error, s3_error};
use serde::{Deserialize, Serialize};

use crate::keys::{Account, Keys};

/// Owner and grants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Acl {
    pub(crate) owner: String,
    pub(crate) grants: Vec<Grant>,
}

/// One line of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Grant {
    pub(crate) grantee: Grantee,
    pub(crate) permission: Permission,
}

/// To whom.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Grantee {
    Account(String),
    AllUsers,
    AuthenticatedUsers,
    LogDelivery,
}

/// What.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Permission {
    FullControl,
    Read,
    Write,
    ReadAcp,
    WriteAcp,
}

/// What a request says about a list to be.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    /// `x-amz-acl`.
    pub(crate) canned: Option<String>,
    /// `x-amz-grant-*`.
    pub(crate) grants: Vec<(Permission, String)>,
    /// The body.
    pub(crate) document: Option<AccessControlPolicy>,
}

impl Asked {
    pub(crate) fn is_empty(&self) -> bool {
        self.canned.is_none() && self.grants.is_empty() && self.document.is_none()
    }

    /// The list asked for, owned by `owner`, in a bucket of `bucket_owner`. Private if nothing was asked.
    ///
    /// # Errors
    /// `InvalidArgument`, `UnresolvableGrantByEmailAddress`, `MalformedACLError`.
    pub(crate) fn resolve(&self, owner: &str, bucket_owner: &str, keys: &dyn Keys) -> Result<Acl, S3Error> {
        if self.canned.is_some() && !self.grants.is_empty() {
            return Err(s3_error!(InvalidRequest, "Specifying both Canned ACLs and Header Grants is not allowed"));
        }
        if let Some(canned) = &self.canned {
            return self::canned(canned, owner, bucket_owner);
        }
        if !self.grants.is_empty() {
            let mut grants = Vec::new();
            for (permission, header) in &self.grants {
                for grantee in header.split(',') {
                    grants.push(Grant { grantee: grantee_of_header(grantee, keys)?, permission: *permission });
                }
            }
            return Ok(Acl { owner: owner.to_owned(), grants });
        }
        match &self.document {
            Some(document) => of_document(document, owner, keys),
            None => Ok(Acl::private(owner)),
        }
    }
}

impl Acl {
    pub(crate) fn private(owner: &str) -> Acl {
        Acl { owner: owner.to_owned(), grants: vec![full_control(owner)] }
    }

    /// The list of a bucket.
    pub(crate) fn of_bucket(bucket: &BucketRecord) -> Acl {
        let stored = bucket.documents.get(DOCUMENT).and_then(|json| serde_json::from_slice(json).ok());
        stored.unwrap_or_else(|| Acl::private(&bucket.owner))
    }

    /// The list of an object.
    pub(crate) fn of_object(attributes: &Attributes, bucket: &BucketRecord) -> Acl {
        let stored = attributes.documents.get(DOCUMENT).and_then(|json| serde_json::from_str(json).ok());
        stored.unwrap_or_else(|| Acl::private(&bucket.owner))
    }

    /// Keeps this list with an object.
    pub(crate) fn keep(&self, attributes: &mut Attributes, bucket: &BucketRecord) {
        attributes.documents.remove(DOCUMENT);
        if *self != Acl::private(&bucket.owner) {
            attributes.documents.insert(DOCUMENT.to_owned(), self.to_json());
        }
    }

    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("plain data with text always serialises")
    }

    /// Whether somebody may do something. `public` false: grants to groups do not count.
    pub(crate) fn allows(&self, who: Option<&Account>, wanted: Permission, public: bool) -> bool {
        let owner = who.is_some_and(|account| account.id == self.owner);
        if owner && matches!(wanted, Permission::ReadAcp | Permission::WriteAcp) {
            return true;
        }
        self.grants.iter().any(|grant| {
            let granted = grant.permission == Permission::FullControl || grant.permission == wanted;
            granted
                && match &grant.grantee {
                    Grantee::Account(id) => who.is_some_and(|account| account.id == *id),
                    Grantee::AllUsers => public,
                    Grantee::AuthenticatedUsers => public && who.is_some(),
                    Grantee::LogDelivery => false,
                }
        })
    }

    /// Whether it grants anything to a group.
    pub(crate) fn is_public(&self) -> bool {
        self.grants.iter().any(|grant| matches!(grant.grantee, Grantee::AllUsers | Grantee::AuthenticatedUsers))
    }

    /// As S3 shows it.
    pub(crate) fn to_dto(&self, keys: &dyn Keys) -> (Owner, Vec<DtoGrant>) {
        let (accounts, groups): (Vec<&Grant>, Vec<&Grant>) =
            self.grants.iter().partition(|grant| matches!(grant.grantee, Grantee::Account(_)));
        let grants = groups.into_iter().chain(accounts).map(|grant| DtoGrant {
            grantee: Some(grantee_to_dto(&grant.grantee, keys)),
            permission: Some(DtoPermission::from_static(match grant.permission {
                Permission::FullControl => DtoPermission::FULL_CONTROL,
                Permission::Read => DtoPermission::READ,
                Permission::Write => DtoPermission::WRITE,
                Permission::ReadAcp => DtoPermission::READ_ACP,
                Permission::WriteAcp => DtoPermission::WRITE_ACP,
            })),
        });
        (owner(&self.owner, keys), grants.collect())
    }
}

/// An account as S3 shows it.
pub(crate) fn owner(id: &str, keys: &dyn Keys) -> Owner {
    let name = keys.account(id).map_or_else(|| id.to_owned(), |account| account.display_name);
    Owner { display_name: Some(name), id: Some(id.to_owned()) }
}

fn grantee_to_dto(grantee: &Grantee, keys: &dyn Keys) -> DtoGrantee {
    let (kind, uri) = match grantee {
        Grantee::Account(id) => {
            let owner = owner(id, keys);
            return DtoGrantee {
                display_name: owner.display_name,
                id: owner.id,
                email_address: None,
                type_: Type::from_static(Type::CANONICAL_USER),
                uri: None,
            };
        }
        Grantee::AllUsers => (Type::GROUP, ALL_USERS),
        Grantee::AuthenticatedUsers => (Type::GROUP, AUTHENTICATED_USERS),
        Grantee::LogDelivery => (Type::GROUP, LOG_DELIVERY),
    };
    DtoGrantee {
        display_name: None,
        id: None,
        email_address: None,
        type_: Type::from_static(kind),
        uri: Some(uri.to_owned()),
    }
}

fn canned(name: &str, owner: &str, bucket_owner: &str) -> Result<Acl, S3Error> {
    let grant = |grantee, permission| Grant { grantee, permission };
    let mut grants = match name {
        "private" => vec![],
        "public-read" => vec![grant(Grantee::AllUsers, Permission::Read)],
        "public-read-write" => {
            vec![grant(Grantee::AllUsers, Permission::Read), grant(Grantee::AllUsers, Permission::Write)]
        }
        "authenticated-read" => vec![grant(Grantee::AuthenticatedUsers, Permission::Read)],
        "log-delivery-write" => {
            vec![grant(Grantee::LogDelivery, Permission::Write), grant(Grantee::LogDelivery, Permission::ReadAcp)]
        }
        "bucket-owner-read" if owner != bucket_owner => {
            vec![grant(Grantee::Account(bucket_owner.to_owned()), Permission::Read)]
        }
        "bucket-owner-full-control" if owner != bucket_owner => vec![full_control(bucket_owner)],
        "bucket-owner-read" | "bucket-owner-full-control" => vec![],
        _ => return Err(s3_error!(InvalidArgument, "There is no canned ACL {name:?}")),
    };
    grants.push(full_control(owner));
    Ok(Acl { owner: owner.to_owned(), grants })
}

fn full_control(account: &str) -> Grant {
    Grant { grantee: Grantee::Account(account.to_owned()), permission: Permission::FullControl }
}

fn group(uri: &str) -> Result<Grantee, S3Error> {
    match uri {
        ALL_USERS => Ok(Grantee::AllUsers),
        AUTHENTICATED_USERS => Ok(Grantee::AuthenticatedUsers),
        LOG_DELIVERY => Ok(Grantee::LogDelivery),
        _ => Err(s3_error!(InvalidArgument, "Invalid group uri {uri:?}")),
    }
}

fn by_id(id: &str, keys: &dyn Keys) -> Result<Grantee, S3Error> {
    let account =
        keys.account(id).ok_or_else(|| s3_error!(InvalidArgument, "Invalid id: there is no account {id:?}"))?;
    Ok(Grantee::Account(account.id))
}

fn by_email(email: &str, keys: &dyn Keys) -> Result<Grantee, S3Error> {
    let account = keys.account_by_email(email).ok_or_else(|| {
        s3_error!(
            UnresolvableGrantByEmailAddress,
            "The email address you provided does not match any account on record"
        )
    })?;
    Ok(Grantee::Account(account.id))
}

/// `id="..."`, `uri="..."` or `emailAddress="..."`.
fn grantee_of_header(text: &str, keys: &dyn Keys) -> Result<Grantee, S3Error> {
    let malformed = || s3_error!(InvalidArgument, "A grant must be id=, uri= or emailAddress= with a value: {text:?}");
    let (kind, value) = text.trim().split_once('=').ok_or_else(malformed)?;
    let value = value.trim().trim_matches('"');
    match kind.trim().to_ascii_lowercase().as_str() {
        "id" => by_id(value, keys),
        "uri" => group(value),
        "emailaddress" => by_email(value, keys),
        _ => Err(malformed()),
    }
}

fn of_document(document: &AccessControlPolicy, owner: &str, keys: &dyn Keys) -> Result<Acl, S3Error> {
    let malformed = || {
        s3_error!(MalformedACLError, "The ACL you provided lacks a grantee or a permission, or names an unknown one")
    };
    let named = document.owner.as_ref().and_then(|owner| owner.id.as_deref());
    if named.is_some_and(|named| named != owner) {
        return Err(s3_error!(AccessDenied, "The owner of a bucket or object cannot be changed"));
    }
    let mut grants = Vec::new();
    for grant in document.grants.iter().flatten() {
        let grantee = grant.grantee.as_ref().ok_or_else(malformed)?;
        let grantee = if let Some(id) = &grantee.id {
            by_id(id, keys)?
        } else if let Some(uri) = &grantee.uri {
            group(uri)?
        } else if let Some(email) = &grantee.email_address {
            by_email(email, keys)?
        } else {
            return Err(malformed());
        };
        let permission = grant.permission.as_ref().ok_or_else(malformed)?;
        let permission = match permission.as_str() {
            DtoPermission::FULL_CONTROL => Permission::FullControl,
            DtoPermission::READ => Permission::Read,
            DtoPermission::WRITE => Permission::Write,
            DtoPermission::READ_ACP => Permission::ReadAcp,
            DtoPermission::WRITE_ACP => Permission::WriteAcp,
            _ => return Err(malformed()),
        };
        grants.push(Grant { grantee, permission });
    }
    Ok(Acl { owner: owner.to_owned(), grants })
}

/// Name of the document that holds a list.
pub(crate) const DOCUMENT: &str = "acl";
const ALL_USERS: &str = "http://acs.amazonaws.com/groups/global/AllUsers";
const AUTHENTICATED_USERS: &str = "http://acs.amazonaws.com/groups/global/AuthenticatedUsers";
const LOG_DELIVERY: &str = "http://acs.amazonaws.com/groups/s3/LogDelivery";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::KeyRing;

    fn keys() -> KeyRing {
        let ring = KeyRing::new();
        ring.insert("k1", "s", Account::named("ann@example.com"));
        ring.insert("k2", "s", Account::named("bob@example.com"));
        ring
    }

    fn asked(canned: &str) -> Asked {
        Asked { canned: Some(canned.to_owned()), ..Asked::default() }
    }

    #[test]
    fn private_allows_the_owner_only() {
        let (ann, bob) = (Account::named("ann@example.com"), Account::named("bob@example.com"));
        let acl = Acl::private(&ann.id);
        assert!(acl.allows(Some(&ann), Permission::Write, true));
        assert!(!acl.allows(Some(&bob), Permission::Read, true));
        assert!(!acl.allows(None, Permission::Read, true));
    }

    #[test]
    fn canned_lists() {
        let (ann, bob) = (Account::named("ann@example.com"), Account::named("bob@example.com"));
        let acl = asked("public-read").resolve(&ann.id, &ann.id, &keys()).expect("known");
        assert!(acl.allows(None, Permission::Read, true) && !acl.allows(None, Permission::Write, true));
        assert!(!acl.allows(None, Permission::Read, false), "public grants can be switched off");
        let acl = asked("authenticated-read").resolve(&ann.id, &ann.id, &keys()).expect("known");
        assert!(acl.allows(Some(&bob), Permission::Read, true) && !acl.allows(None, Permission::Read, true));
        let acl = asked("bucket-owner-read").resolve(&bob.id, &ann.id, &keys()).expect("known");
        assert!(acl.allows(Some(&ann), Permission::Read, true) && !acl.allows(Some(&ann), Permission::ReadAcp, true));
        assert!(asked("public-ready").resolve(&ann.id, &ann.id, &keys()).is_err());
    }

    #[test]
    fn grants_by_header() {
        let asked = |header: &str| Asked { grants: vec![(Permission::Read, header.to_owned())], ..Asked::default() };
        let resolve = |header| asked(header).resolve("ann@example.com", "ann@example.com", &keys());
        let acl = resolve("id=\"bob@example.com\", emailAddress=ann@example.com").expect("known accounts");
        assert_eq!(acl.grants.len(), 2);
        let code = |header| resolve(header).expect_err("refused").code().as_str().to_owned();
        assert_eq!(code("id=_foo"), "InvalidArgument");
        assert_eq!(code("emailAddress=nobody@example.com"), "UnresolvableGrantByEmailAddress");
        assert_eq!(code("uri=http://example.com"), "InvalidArgument");
        assert_eq!(code("who"), "InvalidArgument");
    }

    #[test]
    fn an_owner_without_grants_still_rules_the_list() {
        let ann = Account::named("ann@example.com");
        let acl = Acl { owner: ann.id.clone(), grants: vec![] };
        assert!(acl.allows(Some(&ann), Permission::WriteAcp, true) && !acl.allows(Some(&ann), Permission::Read, true));
    }

    #[test]
    fn stored_text_reads_back() {
        let acl = asked("public-read-write").resolve("ann@example.com", "ann@example.com", &keys()).expect("known");
        assert_eq!(serde_json::from_str::<Acl>(&acl.to_json()).expect("own text"), acl);
    }
}
