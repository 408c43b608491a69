//! The script that keeps leases: its text, its arguments and its reply.

use core::time::Duration;
use std::sync::Arc;

use super::transport::Script;

/// Grants, renews and releases leases.
pub(super) static LEASES: Script = Script::new(include_str!("lua/leases.lua"));

/// Names a lease in Redis: the class, from 0, and the member of that class's set.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct LeaseId {
    pub(super) class: usize,
    pub(super) member: Arc<str>,
}

/// The arguments of [`LEASES`]: everything one round trip carries. `limits` are the numbers of leases below which a lease of each
/// class is granted: leases of the same class, and leases of all classes.
pub(super) fn lease_args(
    lasts: Duration,
    limits: &[(u64, u64)],
    released: &[LeaseId],
    renewed: &[LeaseId],
    wanted: &[LeaseId],
) -> Vec<String> {
    // Rounded up: the server never forgets a lease before its holder does.
    let mut args = vec![lasts.as_nanos().div_ceil(1_000).to_string()];
    for (own, total) in limits {
        args.extend([own.to_string(), total.to_string()]);
    }
    for ids in [released, renewed, wanted] {
        args.push(ids.len().to_string());
        for LeaseId { class, member } in ids {
            args.extend([(class + 1).to_string(), member.to_string()]);
        }
    }
    args
}

/// The reply of [`LEASES`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct LeaseReply {
    /// When the first lease ends if it is not renewed; zero if there are no leases.
    pub(super) first_end_in: Duration,
    /// The number of leases of each class.
    pub(super) in_use: Vec<u32>,
    pub(super) renewed: Vec<bool>,
    pub(super) granted: Vec<bool>,
}

impl LeaseReply {
    /// `None` if the numbers do not fit a request with so many classes and renewed and wanted leases.
    pub(super) fn read(
        numbers: &[i64],
        classes: usize,
        renewed: usize,
        wanted: usize,
    ) -> Option<Self> {
        let (head, rest) = numbers.split_at_checked(2)?;
        let (in_use, rest) = rest.split_at_checked(classes)?;
        let (renewed, granted) = rest.split_at_checked(renewed)?;
        if granted.len() != wanted {
            return None;
        }
        let count = |count: &i64| u32::try_from(*count).ok();
        Some(Self {
            first_end_in: Duration::from_micros(u64::try_from(*head.last()?).ok()?),
            in_use: in_use.iter().map(count).collect::<Option<_>>()?,
            renewed: flags(renewed)?,
            granted: flags(granted)?,
        })
    }
}

fn flags(numbers: &[i64]) -> Option<Vec<bool>> {
    let flag = |number: &i64| match number {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    };
    numbers.iter().map(flag).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(class: usize, member: &str) -> LeaseId {
        LeaseId {
            class,
            member: member.into(),
        }
    }

    #[test]
    fn a_lease_request_has_the_order_in_which_the_script_reads_it() {
        let (released, wanted) = ([id(0, "a")], [id(1, "b"), id(0, "c")]);
        let lasts = Duration::from_nanos(2_001);
        assert_eq!(
            lease_args(lasts, &[(2, 9)], &released, &[], &wanted),
            ["3", "2", "9", "1", "1", "a", "0", "2", "2", "b", "1", "c"]
        );
    }

    #[test]
    fn a_lease_reply_of_the_right_shape_is_read_and_any_other_is_refused() {
        let reply = LeaseReply {
            first_end_in: Duration::from_micros(250),
            in_use: vec![1, 2],
            renewed: vec![true],
            granted: vec![true, false],
        };
        let read = |numbers: &[i64]| LeaseReply::read(numbers, 2, 1, 2);
        assert_eq!(read(&[7, 250, 1, 2, 1, 1, 0]), Some(reply));
        for malformed in [
            &[][..],
            &[7, 250, 1, 2, 1, 1],
            &[7, 250, 1, 2, 1, 1, 0, 0],
            &[7, 250, 1, -2, 1, 1, 0],
            &[7, -250, 1, 2, 1, 1, 0],
            &[7, 250, 1, 2, 1, 2, 0],
        ] {
            assert_eq!(read(malformed), None);
        }
    }
}
