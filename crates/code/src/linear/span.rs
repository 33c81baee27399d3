//! The span of vectors over GF(2^8): which of them are independent, and how they sum up to others.
//!
//! Invariants:
//! 1. Members are independent, so a vector of the span has one expression by them.
//! 2. `steps[c]` is zero before column c, 1 at c, and the sum that its recipe tells of the members.

use crate::field::{inv, mul};

/// Vectors in echelon form that remember which members they were made of.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    members: usize,
    /// One place for each column: the vector that starts there.
    steps: Vec<Option<Step>>,
}

#[derive(Clone, Debug)]
struct Step {
    vector: Vec<u8>,
    /// One coefficient for each member up to the one that made this step.
    recipe: Vec<u8>,
}

impl Span {
    /// The span of nothing, for vectors of `columns` coordinates.
    pub(crate) fn new(columns: usize) -> Self {
        Self { members: 0, steps: vec![None; columns] }
    }

    /// How many members there are: the dimension.
    pub(crate) fn rank(&self) -> usize {
        self.members
    }

    /// Makes `vector` the next member, if it is independent of those there are.
    ///
    /// # Panics
    /// If it has another number of coordinates.
    pub(crate) fn insert(&mut self, vector: &[u8]) -> bool {
        let mut vector = vector.to_vec();
        let mut recipe = vec![0; self.members + 1];
        recipe[self.members] = 1;
        let Some(column) = self.reduce(&mut vector, &mut recipe) else {
            return false;
        };
        let scale = inv(vector[column]);
        for value in vector.iter_mut().chain(&mut recipe) {
            *value = mul(*value, scale);
        }
        self.steps[column] = Some(Step { vector, recipe });
        self.members += 1;
        true
    }

    /// The coefficients, one for each member in the order of insertion, that make `target` of the members; `None` if
    /// it is outside the span.
    ///
    /// # Panics
    /// If it has another number of coordinates.
    pub(crate) fn express(&self, target: &[u8]) -> Option<Vec<u8>> {
        let mut recipe = vec![0; self.members];
        match self.reduce(&mut target.to_vec(), &mut recipe) {
            Some(_) => None,
            None => Some(recipe),
        }
    }

    /// Subtracts steps from `vector`, and adds what they are made of to `recipe`, until a column is left that no step
    /// starts at; `None` if nothing is left.
    fn reduce(&self, vector: &mut [u8], recipe: &mut [u8]) -> Option<usize> {
        assert_eq!(vector.len(), self.steps.len(), "a vector of another space");
        for (column, step) in self.steps.iter().enumerate() {
            let factor = vector[column];
            if factor == 0 {
                continue;
            }
            let Some(step) = step else { return Some(column) };
            add_product(factor, &step.vector[column..], &mut vector[column..]);
            add_product(factor, &step.recipe, recipe);
        }
        None
    }
}

/// sum += factor * values, as far as `values` reach.
fn add_product(factor: u8, values: &[u8], sum: &mut [u8]) {
    for (sum, value) in sum.iter_mut().zip(values) {
        *sum ^= mul(factor, *value);
    }
}

#[cfg(test)]
mod tests {
    use super::{Span, add_product};

    #[test]
    fn what_is_expressed_sums_up_to_the_target() {
        let members = [[1, 2, 3, 0], [7, 0, 9, 1], [0, 0, 5, 200]];
        let mut span = Span::new(4);
        assert!(members.iter().all(|member| span.insert(member)));
        let mut target = [0; 4];
        for (factor, member) in [3, 0, 77].into_iter().zip(&members) {
            add_product(factor, member, &mut target);
        }
        assert_eq!(span.express(&target), Some(vec![3, 0, 77]));
        assert!(!span.insert(&target));
        assert_eq!(span.rank(), 3);
        assert_eq!(span.express(&[0, 0, 0, 1]), None);
        assert!(span.insert(&[0, 0, 0, 1]));
        assert_eq!(span.express(&[0, 0, 0, 9]), Some(vec![0, 0, 0, 9]));
    }
}
