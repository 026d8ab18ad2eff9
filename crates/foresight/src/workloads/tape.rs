//! Derivatives of formulas in double precision: a tape of scalar operations, read backwards.

/// A number that a tape has written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place(usize);

/// Every number of a computation, with what it came from and how steeply.
#[derive(Debug, Default)]
pub(super) struct Tape {
    values: Vec<f64>,
    from: Vec<[Option<(Place, f64)>; 2]>,
}

impl Tape {
    fn write(&mut self, value: f64, from: [Option<(Place, f64)>; 2]) -> Place {
        self.values.push(value);
        self.from.push(from);
        Place(self.values.len() - 1)
    }

    /// A number that comes from nowhere.
    pub(super) fn given(&mut self, value: f64) -> Place {
        self.write(value, [None, None])
    }

    pub(super) fn value(&self, x: Place) -> f64 {
        self.values[x.0]
    }

    pub(super) fn add(&mut self, x: Place, y: Place) -> Place {
        self.write(self.value(x) + self.value(y), [Some((x, 1.0)), Some((y, 1.0))])
    }

    pub(super) fn multiply(&mut self, x: Place, y: Place) -> Place {
        let (a, b) = (self.value(x), self.value(y));
        self.write(a * b, [Some((x, b)), Some((y, a))])
    }

    /// Another value in place of `x`, whose derivative passes as if it were `slope x`.
    pub(super) fn instead(&mut self, x: Place, value: f64, slope: f64) -> Place {
        self.write(value, [Some((x, slope)), None])
    }

    pub(super) fn scale(&mut self, x: Place, factor: f64) -> Place {
        self.instead(x, factor * self.value(x), factor)
    }

    pub(super) fn exp(&mut self, x: Place) -> Place {
        let value = self.value(x).exp();
        self.instead(x, value, value)
    }

    pub(super) fn ln(&mut self, x: Place) -> Place {
        let value = self.value(x);
        self.instead(x, value.ln(), 1.0 / value)
    }

    pub(super) fn sigmoid(&mut self, x: Place) -> Place {
        let value = 1.0 / (1.0 + (-self.value(x)).exp());
        self.instead(x, value, value * (1.0 - value))
    }

    pub(super) fn tanh(&mut self, x: Place) -> Place {
        let value = self.value(x).tanh();
        self.instead(x, value, 1.0 - value * value)
    }

    /// Derivatives of `of` in everything that was written.
    pub(super) fn derivatives(&self, of: Place) -> Vec<f64> {
        let mut found = vec![0.0; self.values.len()];
        found[of.0] = 1.0;
        for at in (0..=of.0).rev() {
            let derivative = found[at];
            for (place, slope) in self.from[at].iter().flatten() {
                found[place.0] += derivative * slope;
            }
        }
        found
    }
}

/// The derivatives of places.
pub(super) fn at(derivatives: &[f64], places: &[Place]) -> Vec<f64> {
    places.iter().map(|place| derivatives[place.0]).collect()
}
