//! The columns of triples that hold users, items and values, by their titles.

use serde::{Deserialize, Serialize};

use crate::formats::fields::{heads_names, names_an_id, text_of};
use crate::formats::like_triples::names_one_of_a_pair;

/// Positions in a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Columns {
    pub user: usize,
    pub item: usize,
    /// `None`: each entry is 1.
    pub value: Option<usize>,
}

/// What a column may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// Users or items.
    Names,
    Value,
    Time,
    Unknown,
}

impl Role {
    fn of(title: &[u8]) -> Role {
        const VALUES: [&str; 19] = [
            "rating",
            "ratings",
            "value",
            "values",
            "val",
            "score",
            "scores",
            "count",
            "counts",
            "stars",
            "weight",
            "weights",
            "quantity",
            "amount",
            "frequency",
            "plays",
            "nonzero",
            "data",
            "x",
        ];
        const TIMES: [&str; 9] = ["ts", "createdat", "updatedat", "unix", "epoch", "year", "month", "day", "hour"];
        let plain: String = text_of(title).chars().filter(|c| c.is_alphanumeric()).collect::<String>().to_lowercase();
        match () {
            () if VALUES.contains(&plain.as_str()) => Role::Value,
            () if TIMES.contains(&plain.as_str()) || plain.contains("time") || plain.contains("date") => Role::Time,
            () if names_an_id(title) || heads_names(title) || names_one_of_a_pair(title) => Role::Names,
            () => Role::Unknown,
        }
    }
}

/// Whether two titles are those of items and users, in this order.
pub fn items_first(first: &[u8], second: &[u8]) -> bool {
    const USERS: [&str; 9] =
        ["user", "customer", "client", "reviewer", "reader", "visitor", "member", "person", "patient"];
    const ITEMS: [&str; 9] = ["item", "movie", "film", "isbn", "product", "track", "song", "artist", "album"];
    // To their words they are as users to items.
    const DOCUMENTS: [&str; 2] = ["book", "article"];
    // An i next to j is a row, and next to u an item.
    const PAIRS: [[&str; 2]; 5] = [["row", "column"], ["row", "col"], ["i", "j"], ["u", "i"], ["source", "target"]];
    let [first, second] = [first, second].map(|title| text_of(title).to_lowercase());
    let is = |title: &str, words: &[&str]| words.iter().any(|word| title.contains(word));
    let user = |title: &str| is(title, &USERS);
    let item = |title: &str| is(title, &ITEMS);
    let document = |title: &str| is(title, &DOCUMENTS);
    let (first, second) = (&*first, &*second);
    if PAIRS.contains(&[second, first]) {
        return true;
    }
    item(first) && !user(first) && !item(second) && !document(second) || user(second) && !item(second) && !user(first)
}

/// Whether the titles contradict the order row, column and, if there are three, value.
pub fn contradict_order(titles: &[&[u8]]) -> bool {
    let roles: Vec<Role> = titles.iter().map(|title| Role::of(title)).collect();
    let value_before = |pair: &[Role], value: &Role| pair.contains(&Role::Value) && *value != Role::Value;
    roles.contains(&Role::Time)
        || matches!(&roles[..], [pair @ .., value] if pair.len() == 2 && value_before(pair, value))
}

impl Columns {
    /// The same with users and items exchanged, if the titles say so.
    fn as_titled(self, titles: &[&[u8]]) -> Columns {
        if items_first(titles[self.user], titles[self.item]) {
            return Columns { user: self.item, item: self.user, ..self };
        }
        self
    }

    /// The columns from `from` on in the order user, item, value, in lines of `width` fields.
    pub fn in_order(from: usize, width: usize) -> Columns {
        Columns { user: from, item: from + 1, value: (width > from + 2).then_some(from + 2) }
    }

    /// Whether the titles name a column of values, or there is none.
    pub fn value_is_named(self, titles: &[&[u8]]) -> bool {
        self.value.is_none_or(|value| Role::of(titles[value]) == Role::Value)
    }

    /// The columns that are used.
    pub fn all(self) -> impl Iterator<Item = usize> {
        [self.user, self.item].into_iter().chain(self.value)
    }

    /// The columns that have these titles, from `from` on. Of the two columns with users and items the first one has the users, unless
    /// the titles say otherwise.
    ///
    /// # Errors
    /// If the titles contradict the usual order and leave another one open.
    pub fn titled(titles: &[&[u8]], from: usize) -> std::result::Result<Columns, String> {
        let roles: Vec<Role> = titles.iter().map(|title| Role::of(title)).collect();
        let usual = Columns::in_order(from, roles.len());
        let of = |role: Role| -> Vec<usize> { (from..roles.len()).filter(|&j| roles[j] == role).collect() };
        let names_first = [usual.user, usual.item].iter().all(|&j| matches!(roles[j], Role::Names | Role::Unknown));
        match (usual.value.map(|j| roles[j]), names_first) {
            (None | Some(Role::Value), true) => return Ok(usual.as_titled(titles)),
            (Some(Role::Unknown), true) if of(Role::Value).is_empty() => return Ok(usual.as_titled(titles)),
            _ => {}
        }
        let (named, others) = (of(Role::Names), of(Role::Unknown));
        let pair = if named.len() == 2 { named } else { [named, others].concat() };
        match (&of(Role::Value)[..], &pair[..]) {
            (&[value], &[a, b]) => {
                Ok(Columns { user: a.min(b), item: a.max(b), value: Some(value) }.as_titled(titles))
            }
            _ => Err("the titles of the columns do not say which hold users, items and values; call them user, item and value, \
                      or leave the other columns out"
                .into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_find_their_columns_or_are_refused() {
        let columns = |titles: &str, from: usize| {
            let titles: Vec<&[u8]> = titles.split(',').map(str::as_bytes).collect();
            Columns::titled(&titles, from).map(|found| (found.user, found.item, found.value)).ok()
        };
        for (titles, from, expected) in [
            ("user,item,rating", 0, Some((0, 1, Some(2)))),
            ("userId,movieId,rating,timestamp", 0, Some((0, 1, Some(2)))),
            ("who,what,how", 0, Some((0, 1, Some(2)))),
            ("user,item", 0, Some((0, 1, None))),
            ("user,item,rating,count", 0, Some((0, 1, Some(2)))),
            (",user,item,value", 1, Some((1, 2, Some(3)))),
            ("timestamp,user,item,rating", 0, Some((1, 2, Some(3)))),
            ("rating,user_id,item_id", 0, Some((1, 2, Some(0)))),
            ("user,rating,item", 0, Some((0, 2, Some(1)))),
            ("date,who,what,stars", 0, Some((1, 2, Some(3)))),
            ("item,user,rating", 0, Some((1, 0, Some(2)))),
            ("movieId,userId,rating", 0, Some((1, 0, Some(2)))),
            ("timestamp,item_id,user_id,rating", 0, Some((2, 1, Some(3)))),
            ("rating,item,user", 0, Some((2, 1, Some(0)))),
            ("keywordID,rating,userID", 0, Some((2, 0, Some(1)))),
            ("track_id,user_id,plays", 0, Some((1, 0, Some(2)))),
            ("isbn,customer", 0, Some((1, 0, None))),
            ("column,row,value", 0, Some((1, 0, Some(2)))),
            ("j,i,x", 0, Some((1, 0, Some(2)))),
            ("u,i,r", 0, Some((0, 1, Some(2)))),
            ("i,u,rating", 0, Some((1, 0, Some(2)))),
            ("user_item,item,count", 0, Some((0, 1, Some(2)))),
            ("article,word,count", 0, Some((0, 1, Some(2)))),
            ("book,term,n", 0, Some((0, 1, Some(2)))),
            ("book,reader", 0, Some((1, 0, None))),
            // In doubt.
            ("user,item,timestamp", 0, None),
            ("user_id,item_id,created_at", 0, None),
            ("user,item,year", 0, None),
            ("time,who,what,grade", 0, None),
            ("patient_id,visit_id,gene_id", 0, None),
            ("rating,score,user,item", 0, None),
            ("date,a,b,c,rating", 0, None),
        ] {
            assert_eq!(columns(titles, from), expected, "{titles}");
        }
    }
}
